#pragma once
// The sum of a stage's weight gradients over its replicas, ascending, and then over the copies of shared groups in
// other stages, ascending: one fixed order, so that all copies get the same bits. It runs beside the compute: begin()
// posts what can be posted, advance() goes on as messages come.
//
// Replica 0 collects its stage's sum, the first stage of a group the group's sum; totals go back the same way.

#include <deque>

#include "runtime/device/device.h"
#include "runtime/executor/channels.h"
#include "runtime/executor/stage_state.h"

namespace graphpipe::runtime {

class Reduction {
 public:
  /// `update`: the samples whose gradients it sums.
  Reduction(const PlanTable& plan, Channels& channels, const Device& device, StageState& state,
            wire::SampleRange update);

  /// Starts the reduction of this step's gradients of the update; completes them first. A second call in a step does
  /// nothing. Where several updates of a stage are under way, they began in ascending order on all its replicas.
  void begin(int64_t step);
  /// Adds what has come and posts what follows. Returns whether the reduction went on.
  bool advance();
  /// Whether the gradients are final and nothing of them is under way.
  bool finished() const;
  bool begun() const { return phase_ != Phase::kIdle; }
  /// The rank whose message it waits for, or -1.
  int32_t waits_for() const;
  /// Makes ready for the next step.
  void reset();

 private:
  enum class Phase { kIdle, kReplicas, kCopies, kBroadcast, kDone };
  struct Shared {
    size_t parameter = 0;
    const GroupRow* group = nullptr;
  };

  bool has_peers() const { return replicas_ > 1 || !shared_.empty(); }
  void move_gradients(bool to_host);
  bool is_root() const { return state_.replica == 0; }
  bool all_done() const;
  PendingMessage& new_message();
  void post_scratch(const ChannelKey& key, size_t parameter, int32_t part);
  void receive_replica();
  void add_scratch();
  void begin_copies();
  void broadcast();
  void enter(Phase phase);

  const PlanTable& plan_;
  Channels& channels_;
  const Device& device_;
  StageState& state_;
  wire::SampleRange update_;
  std::vector<at::Tensor>* gradients_ = nullptr;  // of the update, from begin() on
  int32_t replicas_;
  std::vector<Shared> shared_;  // by ascending group
  Phase phase_ = Phase::kIdle;
  int64_t step_ = 0;
  int32_t next_replica_ = 1;
  std::deque<PendingMessage> pending_;  // of the current phase
  struct Scratch {
    at::Tensor tensor;
    size_t parameter = 0;
  };
  std::vector<Scratch> scratch_;  // what the current phase receives, in the order to add
};

}  // namespace graphpipe::runtime
