#include "runtime/checkpoint/checkpointer.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "runtime/error.h"
#include "runtime/io/sha256.h"
#include "support/check.h"
#include "support/mapped_file.h"

namespace graphpipe::runtime {
namespace {

std::vector<wire::ManifestEntry> write_shards(const std::string& folder, const std::vector<Shard>& shards) {
  // Whichever rank comes first makes it.
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
    throw RunError(Diagnostic{.code = Code::kEnvironment,
                              .origin = ModelText(folder),
                              .message = text("cannot make the folder: ", std::strerror(errno)),
                              .hint = "all ranks must see the folder of --checkpoint, and write there"});
  std::vector<wire::ManifestEntry> entries;
  for (const Shard& shard : shards) {
    const std::string path = folder + "/" + shard.file;
    write_safetensors(path, shard.tensors);
    const MappedFile file = value_or_throw(MappedFile::open(path));
    entries.push_back({shard.file, static_cast<int64_t>(file.bytes().size()), sha256_hex(file.bytes())});
  }
  return entries;
}

// What a rank tells rank 0 once the files of a checkpoint are on its disk: "written STEP", and the files as the record
// has them. There may be several of these, or none.
constexpr std::string_view kWritten = "written ", kFile = "file ";

using FilesByStep = std::map<int64_t, std::vector<wire::ManifestEntry>>;

bool read_told(std::string_view line, FilesByStep& told) {
  if (line.starts_with(kFile) && !told.empty())
    return wire::parse_manifest_line(line.substr(kFile.size()), told.rbegin()->second.emplace_back());
  if (!line.starts_with(kWritten)) return false;
  line.remove_prefix(kWritten.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  const bool ascends = told.empty() || told.rbegin()->first < step;
  return error == std::errc() && end == line.data() + line.size() && ascends && told.try_emplace(step).second;
}

FilesByStep told_by(const std::vector<std::byte>& message) {
  std::string_view rest(reinterpret_cast<const char*>(message.data()), message.size());
  FilesByStep told;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (!read_told(rest.substr(0, end), told))
      fail(Code::kPeerFailed, "a rank sent a malformed list of files", "run all ranks from one folder");
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return told;
}

}  // namespace

Checkpointer::Checkpointer(CheckpointSetup setup) : setup_(std::move(setup)) { catch_stop_signals(); }

bool Checkpointer::is_due(const StepFacts& facts) const {
  const int64_t every = setup_.options.every_steps;
  return facts.is_last || facts.granted.checkpoint || (every > 0 && (facts.step + 1) % every == 0);
}

Request Checkpointer::after_step(const StepFacts& facts) {
  writer_.rethrow();
  committer_.rethrow();
  if (is_due(facts)) take(facts.step + 1);
  Request request = take_signals();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - last_;
  const double minutes = setup_.options.every_minutes;
  if (is_rank_zero() && minutes > 0 && passed.count() >= 60 * minutes) {
    request.checkpoint = true;
    last_ = std::chrono::steady_clock::now();
  }
  return request;
}

void Checkpointer::take(int64_t step) {
  // The copy before is still being written where checkpoints come faster than the disk takes them.
  setup_.wait([&] { return writer_.is_idle(); });
  note_written();
  being_written_ = step;
  copies_.take(setup_.state());
  writer_.start([this, step] {
    written_ = write_shards(unfinished_checkpoint(setup_.options.folder, step, setup_.token), copies_.shards());
  });
}

void Checkpointer::note_written() {
  if (being_written_ < 0 || !writer_.is_idle()) return;
  writer_.rethrow();
  outbox_ += text(kWritten, being_written_, "\n");
  for (const wire::ManifestEntry& file : written_) outbox_ += wire::print_manifest_line(file);
  being_written_ = -1;
}

std::vector<std::byte> Checkpointer::tell() {
  note_written();
  const std::string told = std::exchange(outbox_, {});
  const auto bytes = std::as_bytes(std::span(told));
  return {bytes.begin(), bytes.end()};
}

void Checkpointer::hear(std::span<const std::vector<std::byte>> of_ranks) {
  note_told(of_ranks);
  commit_next();
}

void Checkpointer::note_told(std::span<const std::vector<std::byte>> of_ranks) {
  for (size_t rank = 0; rank < of_ranks.size(); ++rank)
    for (auto& [step, files] : told_by(of_ranks[rank])) uncommitted_[step][rank] = std::move(files);
}

// Begins to commit the oldest checkpoint where all ranks have written it. Returns whether it has begun.
bool Checkpointer::commit_next() {
  if (!committer_.is_idle()) return false;
  committer_.rethrow();
  const auto next = uncommitted_.begin();
  if (next == uncommitted_.end() || next->second.size() < static_cast<size_t>(setup_.ranks)) return false;
  wire::CheckpointRecord record = setup_.record;
  record.step = next->first;
  for (const auto& [rank, files] : next->second) record.files.insert(record.files.end(), files.begin(), files.end());
  uncommitted_.erase(next);
  committer_.start(
      [this, record = std::move(record)] { setup_.folder->commit(record, setup_.token, setup_.options.keep); });
  return true;
}

void Checkpointer::at_end() {
  setup_.wait([&] { return writer_.is_idle(); });
  const std::vector<std::vector<std::byte>> of_ranks = setup_.collect(tell());
  if (is_rank_zero()) {
    note_told(of_ranks);
    do setup_.wait([&] { return committer_.is_idle(); });
    while (commit_next());
    committer_.rethrow();
    GP_CHECK(uncommitted_.empty());
  }
  setup_.wait_for_rank_zero();
}

}  // namespace graphpipe::runtime
