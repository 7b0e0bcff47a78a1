#pragma once
// The sum of a stage's weight gradients over its replicas, and then over the copies of shared groups in other stages,
// in one fixed order, so that all copies get the same bits. It overlaps with compute: begin() posts what can be posted,
// advance() makes progress as messages arrive. Buckets whose gradients are complete before the end of the last backward
// are on their way while the rest of it runs (Li et al., PyTorch Distributed, VLDB'20, section 3.2.3).
//
// Replicas are summed around a ring (ring_all_reduce.h), in the order of buckets.h. The stages of a shared group then
// exchange their sums, all to all, and add them in ascending order of stages: replica r gets the sum of another stage
// from that stage's replica r modulo its number of replicas.

#include <deque>

#include "runtime/collectives/ring_all_reduce.h"
#include "runtime/device/device.h"
#include "runtime/executor/channels.h"
#include "runtime/executor/stage_state.h"

namespace graphpipe::runtime {

/// A message of a shared group between two stages.
struct ShareLink {
  ChannelKey key;
  int32_t from_rank = 0, to_rank = 0;
  int32_t stage = -1;  // the other one
  bool is_send = false;
};
/// The messages of the group at this replica of the stage, ascending by the other stage.
std::vector<ShareLink> share_links(const PlanTable& plan, const GroupRow& group, int32_t stage, int32_t replica);

class Reduction {
 public:
  /// `update`: the samples whose gradients it sums. `earlier`: the previous reduction of the same stage and replica, or
  /// null; must outlive this one. Messages of a ring are sent in the order of the updates.
  Reduction(const PlanTable& plan, Channels& channels, const Device& device, StageState& state,
            wire::SampleRange update, const Reduction* earlier);

  /// Starts the reduction while the backward that completes the gradients still runs, for note_complete(). Needs: the
  /// stage has replicas and something to train.
  void begin_early(int64_t step);
  bool is_early() const { return phase_ != Phase::kIdle && !all_complete_; }
  bool moves_alone() const { return ring_.moves_alone(); }
  bool can_begin_early() const { return phase_ == Phase::kIdle && !buckets_.empty(); }
  /// Nothing more is added to the gradients of these parameters (places in StageEntry::params): they may be summed.
  void note_complete(std::span<const int32_t> params);
  /// Starts the reduction of this step's gradients of the update, after completing them. A second call in a step does
  /// nothing. If several updates of a stage are in flight, they must have begun in ascending order on all its replicas.
  void begin(int64_t step);
  /// Adds what has arrived and posts what follows. Returns whether there was any progress.
  bool advance();
  /// Whether the gradients are final and no message is in flight.
  bool finished() const { return phase_ == Phase::kIdle || phase_ == Phase::kDone; }
  bool begun() const { return all_complete_; }
  /// The rank whose message it waits for, or -1.
  int32_t waits_for() const;
  /// Prepares for the next step.
  void reset();

 private:
  enum class Phase { kIdle, kReplicas, kCopies, kDone };
  struct Shared {
    size_t parameter = 0;
    const GroupRow* group = nullptr;
  };
  struct Copy {
    size_t shared = 0;
    int32_t stage = -1;
    at::Tensor sum;
  };

  bool replicas_are_summed() const { return phase_ == Phase::kCopies || phase_ == Phase::kDone; }
  void start(int64_t step);
  void offer_buckets();
  at::Tensor bucket_value(const Bucket& bucket);
  bool copies_are_here() const;
  void begin_copies();
  void add_copies();

  const PlanTable& plan_;
  Channels& channels_;
  const Device& device_;
  StageState& state_;
  wire::SampleRange update_;
  const Reduction* earlier_;
  std::vector<Bucket> buckets_;
  RingAllReduce ring_;
  std::vector<at::Tensor>* gradients_ = nullptr;  // of the update, from the start on
  std::vector<bool> complete_;                    // gradients, by place in StageEntry::params, from the start on
  bool all_complete_ = false;
  size_t offered_ = 0;          // buckets
  std::vector<Shared> shared_;  // by ascending group
  Phase phase_ = Phase::kIdle;
  int64_t step_ = 0;
  std::deque<PendingMessage> pending_;  // in phase kCopies
  std::deque<Copy> copies_;             // what phase kCopies receives, by shared group, ascending stage
};

}  // namespace graphpipe::runtime
