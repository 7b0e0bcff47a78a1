#pragma once
// What --checkpoint and --resume mean for one rank of a run, from start to end. The serial interpreter has a session
// too: it stands for all ranks.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpointer.h"
#include "runtime/collectives/gather.h"
#include "runtime/device/device.h"
#include "runtime/launch/control.h"
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
    /// Returns rank 0's value on all ranks.
    std::function<std::string(const std::string& key, const std::string& value)> share;
    /// Null if there is no other rank.
    ControlPlane* control = nullptr;
  };

  /// Restores the states if the options resume; takes the folder of --checkpoint on rank 0. Throws the RunErrors of
  /// resume.h and checkpoint_folder.h.
  explicit CheckpointSession(Rank rank);
  CheckpointSession(const CheckpointSession&) = delete;

  /// Steps completed before this run.
  int64_t first_step() const { return first_step_; }
  /// The last losses before it; only rank 0 knows them.
  const std::vector<double>& earlier_losses() const { return setup_.record.losses; }
  /// What the run's feeder calls its data, "" if it does not say: on rank 0, before the first step. Throws RunError
  /// (kUsage) if the checkpoint's run was fed other data and the options do not accept changes.
  void name_fed_data(const std::string& name);
  /// The observer that writes the checkpoints; null if none are asked for. Lives as long as the session.
  StepObserver* observe(Gather* gather, Channels* channels);

 private:
  void resume(const wire::CheckpointRecord& run);
  std::vector<Shard> shards() const;

  Rank rank_;
  int64_t first_step_ = 0;
  CheckpointSetup setup_;
  std::string resumed_data_;  // the digest of the checkpoint's data; empty if nothing is resumed
  std::unique_ptr<Checkpointer> checkpointer_;
};

}  // namespace graphpipe::runtime
