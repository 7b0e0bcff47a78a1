#include "runtime/checkpoint/checkpointer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "runtime/checkpoint/shard_file.h"
#include "runtime/collectives/message_parts.h"
#include "runtime/error.h"
#include "runtime/executor/check_copies.h"
#include "runtime/executor/check_weights.h"
#include "support/check.h"

namespace graphpipe::runtime {
namespace {

std::vector<wire::ManifestEntry> write_shards(const std::string& folder, const std::vector<Shard>& shards) {
  // The first rank to get here creates it.
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
    throw RunError(Diagnostic{.code = Code::kEnvironment,
                              .origin = ModelText(folder),
                              .message = text("cannot make the folder: ", std::strerror(errno)),
                              .hint = "all ranks must see the folder of --checkpoint, and write there"});
  std::vector<wire::ManifestEntry> entries;
  for (const Shard& shard : shards) {
    if (shard.file.empty()) continue;
    // No training recovers from such weights, so the checkpoint before stays the last one.
    if (shard.holds_model())
      if (const auto found = not_finite_tensor(shard.tensors))
        throw RunError(weights_problem("a checkpoint is not written, its weights are not finite", *found));
    entries.push_back(write_shard_file(folder, shard.file, shard.tensors));
  }
  return entries;
}

using Bytes = std::vector<std::byte>;

// What a rank reports to rank 0 once the files of checkpoints are on its disk: for each, "written STEP" and the files
// as they appear in the record, and "failed" where it could not write one more; then, for each, the digests of its
// copies of parameters.
constexpr std::string_view kWritten = "written ", kFile = "file ", kFailed = "failed";

// Of the checkpoints that a rank has written, how many it posts: rank 0 may have failed before it heard of the ones
// before the last.
constexpr size_t kPosted = 3;

using FilesByStep = std::map<int64_t, std::vector<wire::ManifestEntry>>;

bool read_told(std::string_view line, FilesByStep& told) {
  if (line == kFailed) return true;
  if (line.starts_with(kFile) && !told.empty())
    return wire::parse_manifest_line(line.substr(kFile.size()), told.rbegin()->second.emplace_back());
  if (!line.starts_with(kWritten)) return false;
  line.remove_prefix(kWritten.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  const bool ascends = told.empty() || told.rbegin()->first < step;
  return error == std::errc() && end == line.data() + line.size() && ascends && told.try_emplace(step).second;
}

bool read_files(const Bytes& message, FilesByStep& told) {
  std::string_view rest(reinterpret_cast<const char*>(message.data()), message.size());
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (!read_told(rest.substr(0, end), told)) return false;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return true;
}

// Whether no later report can tell more of this step.
bool is_final_for(int64_t step, const Bytes& report) {
  const std::optional<std::vector<Bytes>> parts = parts_of(report, 2);
  FilesByStep told;
  if (!parts || !read_files(parts->front(), told)) return true;
  const std::string_view files(reinterpret_cast<const char*>(parts->front().data()), parts->front().size());
  return told.contains(step) || files.ends_with(text(kFailed, "\n"));
}

using namespace std::chrono_literals;

// Of a run that fails, for what other ranks are writing: its error is reported after that.
constexpr auto kTimeToFinish = 8s;

// Of a run that fails its own error is reported, whatever comes of this.
void attempt(const std::function<void()>& part) noexcept {
  try {
    part();
  } catch (...) {
  }
}

void wait_until(std::chrono::steady_clock::time_point deadline, const std::function<bool()>& ready) {
  while (!ready() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(5ms);
}

}  // namespace

Checkpointer::Checkpointer(CheckpointSetup setup) : setup_(std::move(setup)), losses_(0, setup_.record.losses) {
  catch_stop_signals();
}

bool Checkpointer::is_due(const StepFacts& facts) const {
  const int64_t every = setup_.options.every_steps;
  return facts.is_last || facts.granted.checkpoint || (every > 0 && (facts.step + 1) % every == 0);
}

Request Checkpointer::after_step(const StepFacts& facts) {
  note_written();
  committer_.rethrow();
  if (facts.loss && facts.skipped.empty()) losses_.keep(*facts.loss);
  trained_ = facts.step + 1;
  if (is_due(facts)) take();
  Request request = take_signals();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - last_;
  const double minutes = setup_.options.every_minutes;
  if (is_rank_zero() && minutes > 0 && passed.count() >= 60 * minutes) {
    request.checkpoint = true;
    last_ = std::chrono::steady_clock::now();
  }
  return request;
}

void Checkpointer::take() {
  const int64_t step = taken_ = trained_;
  // The previous copy is still being written if checkpoints are requested faster than the disk can write them.
  setup_.wait([&] { return writer_.is_idle(); });
  note_written();
  copies_.take(setup_.state());
  being_written_ = step;
  if (is_rank_zero()) losses_at_[step] = losses_.kept();
  writer_.start([this, step] { write(step); });
}

// In the writer's thread.
void Checkpointer::write(int64_t step) {
  bool failed = true;
  // Whatever comes of this one, rank 0 may not have heard of those before.
  const auto post = [&] {
    if (setup_.post) setup_.post(report_of(posted_, failed));
  };
  try {
    written_.files = write_shards(unfinished(step), copies_.shards());
    written_.copies = setup_.digest(copies_.shards());
    failed = false;
  } catch (...) {
    post();
    throw;
  }
  posted_[step] = written_;
  if (posted_.size() > kPosted) posted_.erase(posted_.begin());
  post();
}

void Checkpointer::note_written() {
  if (being_written_ < 0 || !writer_.is_idle()) return;
  // What could not be written is never reported.
  const int64_t step = std::exchange(being_written_, -1);
  Written written = std::exchange(written_, {});
  writer_.rethrow();
  outbox_[step] = std::move(written);
}

std::vector<std::byte> Checkpointer::tell() {
  note_written();
  if (outbox_.empty()) return {};
  return report_of(std::exchange(outbox_, {}));
}

std::vector<std::byte> Checkpointer::report_of(const std::map<int64_t, Written>& by_step, bool failed) {
  std::string files;
  Bytes copies, message;
  for (const auto& [step, written] : by_step) {
    files += text(kWritten, step, "\n");
    for (const wire::ManifestEntry& file : written.files) files += wire::print_manifest_line(file);
    add_part(copies, written.copies);
  }
  if (failed) files += text(kFailed, "\n");
  const auto bytes = std::as_bytes(std::span(files));
  add_part(message, {bytes.begin(), bytes.end()});
  add_part(message, copies);
  return message;
}

void Checkpointer::hear(std::span<const std::vector<std::byte>> of_ranks) {
  note_told(of_ranks);
  commit_next();
}

void Checkpointer::note_told(std::span<const std::vector<std::byte>> of_ranks) {
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (of_ranks[rank].empty()) continue;
    const std::optional<std::vector<Bytes>> parts = parts_of(of_ranks[rank], 2);
    FilesByStep told;
    std::optional<std::vector<Bytes>> copies;
    if (parts && read_files(parts->front(), told)) copies = parts_of(parts->back(), told.size());
    if (!copies) fail(Code::kPeerFailed, "a rank sent a malformed list of files", "run all ranks from one folder");
    auto of_step = copies->begin();
    for (auto& [step, files] : told) uncommitted_[step][rank] = {std::move(files), std::move(*of_step++)};
  }
}

// Starts to commit the oldest checkpoint if all ranks have written it. Returns whether it did.
bool Checkpointer::commit_next() {
  if (!committer_.is_idle()) return false;
  committer_.rethrow();
  committing_.reset();
  const auto next = uncommitted_.begin();
  if (next == uncommitted_.end() || next->second.size() < static_cast<size_t>(setup_.ranks)) return false;
  // It is gone before anything can fail: what has been refused once is never committed.
  const auto whole = uncommitted_.extract(next);
  const auto losses = losses_at_.extract(whole.key());
  wire::CheckpointRecord record = setup_.record;
  record.step = whole.key();
  if (!losses.empty()) record.losses = losses.mapped();
  std::vector<Bytes> copies;
  for (const auto& [rank, written] : whole.mapped()) {
    record.files.insert(record.files.end(), written.files.begin(), written.files.end());
    copies.push_back(written.copies);
  }
  check_copies(copies);
  committing_ = std::move(record);
  committer_.start([this, record = *committing_] { setup_.folder->commit(record, setup_.token, setup_.options.keep); });
  return true;
}

void Checkpointer::at_end() {
  if (trained_ != taken_) take();
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

void Checkpointer::at_failure() noexcept {
  attempt([&] { setup_.wait([&] { return writer_.is_idle(); }); });  // at once where another rank has failed
  writer_.finish();
  if (!is_rank_zero() && setup_.rank_zero_has_left())  // nobody commits what it has begun
    attempt([&] { remove_unfinished(setup_.options.folder, setup_.token); });
  if (!is_rank_zero()) return;
  attempt([&] { note_written(); });  // of a checkpoint that could not be written it says so, once
  attempt([&] {
    const std::vector<Bytes> own(1, tell());
    note_told(own);
  });
  attempt([&] { take_posted(Clock::now() + kTimeToFinish); });
  attempt([&] { commit_whole(); });
  attempt([&] { remove_unfinished(setup_.options.folder, setup_.token); });
  attempt([&] { note_last(); });
}

void Checkpointer::take_posted(Clock::time_point deadline) {
  if (taken_ == 0) return;
  for (auto rank = size_t{1}; rank < static_cast<size_t>(setup_.ranks); ++rank) {
    std::vector<Bytes> of_ranks(rank + 1);
    wait_until(deadline, [&] {
      const CheckpointSetup::Posted posted = setup_.posted_by(rank);
      if (posted.report) of_ranks[rank] = *posted.report;
      return posted.left || (posted.report && is_final_for(taken_, *posted.report));
    });
    note_told(of_ranks);
  }
}

void Checkpointer::commit_whole() {
  committer_.finish();
  const auto ranks = static_cast<size_t>(setup_.ranks);
  std::erase_if(uncommitted_, [&](const auto& of_step) { return of_step.second.size() < ranks; });
  std::set<int64_t> whole;
  for (const auto& [step, of_ranks] : uncommitted_) whole.insert(step);
  const bool again = committing_ && ::access(unfinished(committing_->step).c_str(), F_OK) == 0;
  if (again) whole.insert(committing_->step);
  // Where those that are not whole have filled the disk, there is room for the records of the others without them.
  if (!whole.empty()) remove_unfinished(setup_.options.folder, setup_.token, whole);
  if (again) {
    attempt([&] { committer_.rethrow(); });
    setup_.folder->commit(*committing_, setup_.token, setup_.options.keep);
  }
  while (commit_next()) committer_.finish();
  committer_.rethrow();
}

void Checkpointer::note_last() const {
  const std::vector<int64_t> steps = checkpoint_steps(setup_.options.folder);
  if (steps.empty()) return;
  const std::string name = setup_.options.folder + "/" + wire::checkpoint_name(steps.back());
  setup_.note({.code = Code::kInterrupted,
               .severity = Severity::kNote,
               .origin = ModelText(name),
               .message = text("the last checkpoint, of step ", steps.back(), ", is whole"),
               .hint = "go on from it with --resume and its folder, once the cause is mended"});
}

}  // namespace graphpipe::runtime
