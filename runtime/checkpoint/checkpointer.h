#pragma once
// Writes the checkpoints of a rank. At the end of a step that is due it copies the rank's state; a thread writes the
// copy while training continues, and rank 0 commits the checkpoint once all ranks have reported, together with the
// losses of a later step, that their files are on disk. Copies of one parameter are compared first: if they differ, the
// run ends and the checkpoint is discarded. A run that fails still finishes the last checkpoint that it has begun, if
// all ranks can write their part, removes what is not whole, and says which checkpoint is the last.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/background_writer.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/shards.h"
#include "runtime/training/loss_limit.h"
#include "runtime/training/step_observer.h"
#include "runtime/training/stop_signals.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

struct CheckpointSetup {
  wire::CheckpointOptions options;
  /// Everything but the step and the files; its losses are those before the first step.
  wire::CheckpointRecord record;
  /// The same on all ranks of the run, and different for every run.
  std::string token;
  /// Rank 0's; null elsewhere.
  std::unique_ptr<CheckpointFolder> folder;
  int32_t ranks = 1;
  /// The rank's current state.
  std::function<std::vector<Shard>()> state;
  /// What check_copies() reads of such shards.
  std::function<std::vector<std::byte>(const std::vector<Shard>&)> digest;
  /// Returns once the condition holds; meanwhile the other ranks must see that this one is alive.
  std::function<void(const std::function<bool()>& ready)> wait;
  /// On rank 0 the bytes of all ranks in order; elsewhere nothing.
  std::function<std::vector<std::vector<std::byte>>(std::vector<std::byte> own)> collect;
  /// Returns once rank 0 has called it.
  std::function<void()> wait_for_rank_zero;
  /// For runs that fail, where no step carries reports any more: leaves this rank's report with rank 0, in place of the
  /// one before. May be called by any thread; null if there is no other rank.
  std::function<void(const std::vector<std::byte>& report)> post;
  /// On rank 0 what a rank has posted, and whether it has left the run, so that nothing will follow.
  struct Posted {
    std::optional<std::vector<std::byte>> report;
    bool left = false;
  };
  std::function<Posted(size_t rank)> posted_by;
  /// Whether rank 0 has left the run, and knows of no more reports.
  std::function<bool()> rank_zero_has_left;
  /// Tells the user, beside what ends the run.
  std::function<void(const Diagnostic&)> note;
};

class Checkpointer : public StepObserver {
 public:
  explicit Checkpointer(CheckpointSetup setup);

  Request after_step(const StepFacts& facts) override;
  bool may_ask() const override { return true; }
  std::vector<std::byte> tell() override;
  void hear(std::span<const std::vector<std::byte>> of_ranks) override;
  void at_end() override;
  /// Waits for this rank's files. Rank 0 also waits for those of others, a few seconds at most, commits what all ranks
  /// have written, removes the rest, and notes the last checkpoint. Ranks that rank 0 has left remove the rest as well.
  void at_failure() noexcept override;

 private:
  using Files = std::vector<wire::ManifestEntry>;
  /// What a rank has written for a checkpoint: files, and the digests of its copies of parameters.
  struct Written {
    Files files;
    std::vector<std::byte> copies;
  };
  /// `failed`: one more could not be written.
  static std::vector<std::byte> report_of(const std::map<int64_t, Written>& by_step, bool failed = false);
  bool is_due(const StepFacts& facts) const;
  /// Begins the checkpoint of the step that was trained last.
  void take();
  void note_written();
  void note_told(std::span<const std::vector<std::byte>> of_ranks);
  void write(int64_t step);
  using Clock = std::chrono::steady_clock;
  /// Takes what the other ranks have posted, and waits for those that are still writing the last checkpoint.
  void take_posted(Clock::time_point deadline);
  void commit_whole();
  void note_last() const;
  bool commit_next();
  std::string unfinished(int64_t step) const {
    return unfinished_checkpoint(setup_.options.folder, step, setup_.token);
  }
  bool is_rank_zero() const { return setup_.folder != nullptr; }

  CheckpointSetup setup_;
  ShardCopies copies_;
  int64_t trained_ = 0, taken_ = 0;    // steps
  int64_t being_written_ = -1;         // the step of the checkpoint that the writer is working on; -1: none
  Written written_;                    // what its job has written
  std::map<int64_t, Written> posted_;  // the last ones that the writer has written; only its jobs use it
  std::map<int64_t, Written> outbox_;  // not yet reported to rank 0
  std::map<int64_t, std::map<size_t, Written>> uncommitted_;  // on rank 0: by step and rank
  std::optional<wire::CheckpointRecord> committing_;  // on rank 0: what the committer is working on, or failed at
  LossLimit losses_;                                  // this and the next: rank 0 only
  std::map<int64_t, std::vector<double>> losses_at_;  // of checkpoints that are not committed
  BackgroundWriter writer_, committer_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace graphpipe::runtime
