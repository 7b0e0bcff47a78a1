#pragma once
// What --checkpoint and --resume mean for one rank of a run, from its start to its end. The serial interpreter has one
// too: it is all ranks at once.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpointer.h"
#include "runtime/collectives/gather.h"
#include "runtime/device/device.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

class CheckpointSession {
 public:
  struct Rank {
    const PlanTable& plan;
    const wire::RunOptions& options;
    /// The generated folder.
    std::string folder;
    int32_t rank = 0;
    int32_t ranks = 1;
    const Device& device;
    std::vector<StageState*> states;
    /// Rank 0's value on all ranks.
    std::function<std::string(const std::string& key, const std::string& value)> share;
  };

  /// Restores the states where the options resume; takes the folder of --checkpoint on rank 0. Throws RunError, those
  /// of resume.h and checkpoint_folder.h.
  explicit CheckpointSession(Rank rank);
  CheckpointSession(const CheckpointSession&) = delete;

  /// Steps done before this run.
  int64_t first_step() const { return first_step_; }
  /// The last losses before it, which only rank 0 knows.
  const std::vector<double>& earlier_losses() const { return setup_.record.losses; }
  /// What the feeder of the run calls its data, "" where it does not say: on rank 0 before the first step. Throws
  /// RunError (kUsage) where the checkpoint's run was fed other data and the options do not accept changes.
  void name_fed_data(const std::string& name);
  /// The observer that takes the checkpoints; null where none are asked for. Lives as long as the session.
  StepObserver* observe(Gather* gather, Channels* channels);

 private:
  void resume(const wire::CheckpointRecord& run);
  std::vector<Shard> shards() const;

  Rank rank_;
  int64_t first_step_ = 0;
  CheckpointSetup setup_;
  std::string resumed_data_;  // the digest of the checkpoint's data; empty where nothing is resumed
  std::unique_ptr<Checkpointer> checkpointer_;
};

}  // namespace graphpipe::runtime
