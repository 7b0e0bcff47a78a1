#pragma once
// What a planner decides, and nothing else. Everything that follows from it is derived (stage_graph.h).

#include <vector>

#include "ir/cluster.h"
#include "ir/plan_graph.h"
#include "support/integer_math.h"
#include "wire/training.h"

namespace graphpipe::ir {

using StageId = Id<struct StageTag>;

using ReplicaMode = wire::ReplicaMode;

/// Samples of the last micro-batch of a step, which may be fewer than the others have.
inline int64_t smallest_micro_batch(Samples batch, Samples micro_batch) {
  const int64_t rest = batch.count % micro_batch.count;
  return rest == 0 ? micro_batch.count : rest;
}

struct StageChoice {
  /// One per replica, each once. A device may hold several stages.
  std::vector<DeviceId> devices;
  /// Tensor-parallel degree: each replica runs on so many devices with consecutive numbers, of which `devices` names
  /// the first.
  int degree = 1;
  /// Samples of one micro-batch; the last of a step may be smaller.
  Samples micro_batch{1};
  /// k of kFkB: k forwards, then k backwards in steady state.
  int k = 1;
  ReplicaMode mode = ReplicaMode::kSplit;
  /// Keep only the boundary inputs and run the forward again before the backward.
  bool recompute = false;
  /// Optimizer state divided over the replicas.
  bool shard_optimizer_state = false;

  /// Micro-batches that the replicas work on side by side: one, or as many as take turns.
  int64_t turns() const { return mode == ReplicaMode::kRoundRobin ? static_cast<int64_t>(devices.size()) : 1; }
  /// Samples in which every replica has had its part of one micro-batch.
  int64_t samples_of_turns() const { return micro_batch.count * turns(); }
  /// Samples of an item: the largest share of a micro-batch that one replica gets.
  Samples item_samples() const {
    const int64_t parts = mode == ReplicaMode::kSplit ? static_cast<int64_t>(devices.size()) : 1;
    return Samples(ceil_div(micro_batch.count, parts));
  }

  /// Whether there are replicas that divide the optimizer's state.
  bool divides_optimizer_state() const { return shard_optimizer_state && devices.size() > 1; }

  bool operator==(const StageChoice&) const = default;
};

struct Assignment {
  IdMap<PlanNodeId, StageId> stage_of;
  IdMap<StageId, StageChoice> choice;
  /// Of each node the number of its alternative, which has the degree of its stage; empty: every node as it stands.
  IdMap<PlanNodeId, int> alternative;
  bool operator==(const Assignment&) const = default;
};

/// Whether some device holds several stages.
bool shares_devices(const Assignment& plan);

}  // namespace graphpipe::ir
