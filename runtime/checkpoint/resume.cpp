#include "runtime/checkpoint/resume.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "runtime/checkpoint/shards.h"
#include "runtime/error.h"
#include "runtime/io/folder.h"
#include "runtime/io/sha256.h"
#include "runtime/launch/run_main.h"
#include "support/mapped_file.h"
#include "support/output_file.h"

namespace graphpipe::runtime {
namespace {

namespace fs = std::filesystem;

constexpr size_t kEndBytes = size_t{64} << 10;
constexpr size_t kDigestDigits = 64;

std::string digest_of(std::string_view text) { return sha256_hex(std::as_bytes(std::span(text))); }

// Arrays, and the folders of ONNX test data.
std::vector<fs::path> data_files(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string kind = entry->path().extension().string();
    if ((kind == ".npy" || kind == ".pb") && entry->is_regular_file(error)) files.push_back(entry->path());
  }
  std::ranges::sort(files);
  return files;
}

[[noreturn]] void refuse_resume(const std::string& path, std::string_view why, std::string_view hint) {
  throw RunError(Diagnostic{
      .code = Code::kUsage, .origin = ModelText(path), .message = std::string(why), .hint = std::string(hint)});
}

// Of a folder that exists; "." has one too.
std::string parent_of(const std::string& folder) {
  std::error_code error;
  return fs::canonical(folder, error).parent_path().string();
}

std::string flags_text(const wire::CheckpointRecord& record) {
  std::string out;
  for (const auto& [name, value] : record.flags)
    out += (out.empty() ? "" : " ") + Terminal::encode_text(name + " " + value).str();
  return out.empty() ? "none of these flags" : out;
}

void check_same_training(const FoundCheckpoint& found, const wire::CheckpointRecord& run, bool accept_changes,
                         bool is_fed) {
  const auto& [path, record] = found;
  if (record.model != run.model)
    refuse_resume(path, "the checkpoint is of another model", "compile that model, or start with --weights");
  if (record.optimizer != run.optimizer)
    refuse_resume(path,
                  text("the checkpoint holds the state of ", quoted(ModelText(record.optimizer)),
                       ", and the plan trains with ", run.optimizer),
                  text("compile with --optimizer ", Terminal::encode_text(record.optimizer).str(),
                       ", or start anew from its weights"));
  if (accept_changes) return;
  // The feeder names its data only once it answers: CheckpointSession::name_fed_data().
  const char* hint = "run with what it was written with, or say --resume-changed";
  if (record.seed != run.seed)
    refuse_resume(path, text("the checkpoint's run had --seed ", record.seed, ", this one has ", run.seed), hint);
  if (record.data != run.data && !is_fed) refuse_resume(path, "the checkpoint's run trained on other data", hint);
  if (record.batch > 0 && record.batch != run.batch)
    refuse_resume(
        path, text("the checkpoint's run had steps of ", record.batch, " samples, this plan has steps of ", run.batch),
        text("compile with --batch ", record.batch,
             ", or say --resume-changed: steps are counted, so that it goes "
             "on at sample ",
             record.step * run.batch));
  if (record.flags != run.flags)
    refuse_resume(path, text("the checkpoint's run had ", flags_text(record), ", this one has ", flags_text(run)),
                  hint);
}

}  // namespace

std::string data_digest(const std::string& folder) {
  if (folder.empty()) return std::string(kDigestDigits, '0');
  std::string all;
  for (const fs::path& path : data_files(folder)) {
    const MappedFile file = value_or_throw(MappedFile::open(path.string()));
    const std::span<const std::byte> bytes = file.bytes();
    const size_t end = std::min(bytes.size(), kEndBytes);
    all += text(path.lexically_relative(folder).string(), " ", bytes.size(), " ", sha256_hex(bytes.first(end)), " ",
                sha256_hex(bytes.last(end)), "\n");
  }
  return digest_of(all);
}

std::string fed_data_digest(const std::string& name) { return digest_of("fed " + name); }

wire::CheckpointRecord record_of_run(const PlanTable& plan, const wire::RunOptions& options,
                                     const std::string& folder) {
  wire::CheckpointRecord record{.model = weights_digest(folder),
                                .plan = plan.plan_digest,
                                .optimizer = std::string(plan.optimizer),
                                .batch = plan.batch,
                                .seed = seed_of(plan, options),
                                .data = data_digest(options.data.folder)};
  const wire::RunOptions defaults;
  for (const wire::RunFlag& flag : wire::run_flags()) {
    const std::string value = flag.write(options);
    if (!flag.kept_on_resume || value == flag.write(defaults)) continue;
    // A flag that is given several times writes one line per occurrence.
    for (const std::string_view word : split(value, "\n"))
      if (std::pair entry(std::string(flag.name), std::string(word));
          !flag.repeats || std::ranges::find(record.flags, entry) == record.flags.end())
        record.flags.push_back(std::move(entry));
  }
  return record;
}

std::optional<FoundCheckpoint> find_resume(const wire::RunOptions& options, const wire::CheckpointRecord& run) {
  const std::string& path = options.checkpoint.resume;
  Diagnostics damaged;
  std::optional<FoundCheckpoint> found = find_last_checkpoint(path, damaged);
  if (!found && !damaged.empty()) throw RunError(damaged);
  if (!found && fs::exists(fs::path(path) / wire::kCheckpointRecord))
    refuse_resume(path, "it is one checkpoint, and the folder of a run's checkpoints is asked for",
                  text("name ", Terminal::encode_text(parent_of(path)).str(),
                       ", of which the last one is taken: to go on from an earlier one, move those behind it away"));
  if (!found && is_same_file(path, options.checkpoint.folder)) return std::nullopt;
  if (!found)
    refuse_resume(path, "the folder holds no checkpoint",
                  "name the folder of --checkpoint; with both flags a run starts from the beginning where it is empty");
  for (Diagnostic& problem : damaged) {
    problem.severity = Severity::kWarning;
    problem.hint = text("the run goes on from step ", found->record.step);
    std::fprintf(stderr, "%s\n", to_line(problem).c_str());
  }
  check_same_training(*found, run, options.checkpoint.accept_changes, !options.data.feed.empty());
  if (found->record.step > options.data.steps)
    refuse_resume(found->path,
                  text("the checkpoint is of step ", found->record.step, ", behind --steps ", options.data.steps),
                  "--steps counts from the beginning of the training: ask for more");
  return found;
}

int64_t restore(const std::string& checkpoint, const PlanTable& plan, const std::vector<StageState*>& states,
                const Device& device) {
  const wire::CheckpointRecord record = read_checkpoint_record(checkpoint);
  const CheckpointTensors tensors(checkpoint, record);
  for (StageState* state : states) tensors.restore(*state, record.plan == plan.plan_digest, device);
  return record.step;
}

}  // namespace graphpipe::runtime
