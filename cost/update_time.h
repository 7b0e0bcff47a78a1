#pragma once
// Seconds of an optimizer step: what planners, closed forms and the simulator price it at.

#include "ir/cluster.h"
#include "ir/stage_graph.h"

namespace graphpipe::cost {

/// What a step updates of the weights on one device.
struct UpdateWork {
  double tensors = 0;
  double bytes = 0;
  /// Bytes of memory traffic, and operations of products of matrices.
  double traffic = 0, flops = 0;
  /// One parameter more, of which an update passes over so many bytes.
  void add(const ir::WeightGroup& weights, Bytes updated) {
    ++tensors;
    bytes += static_cast<double>(updated.count);
    traffic += weights.update_passes * static_cast<double>(updated.count);
    flops += weights.update_flops;
  }
};
/// Of one replica; those that divide the optimizer's state update a part each.
UpdateWork update_work(const ir::Stage& stage);

/// As measured for the plan's optimizer (RuntimeCosts), else by memory traffic and the device's rate of products.
Seconds update_time(const UpdateWork& work, const ir::Cluster& cluster, ir::DeviceId device);

/// Of the bytes that a ring moves to add up gradients, the share that replicas then send each other of the weights that
/// each has updated, where they divide the optimizer's state: every byte goes to all others once, not twice.
inline constexpr double kHandOut = 0.5;
/// Messages between the stage's replicas in a step: gradients, and weights where they divide the optimizer's state.
Seconds exchange_time(const ir::Cluster& cluster, const ir::Stage& stage);

/// All weights on the slowest device.
Seconds update_of_all(const ir::PlanGraph& graph, const ir::Cluster& cluster);

/// Of the stage's slowest replica; zero where nothing is trained.
Seconds update_time(const ir::StageGraph& graph, const ir::Cluster& cluster, ir::StageId stage);

}  // namespace graphpipe::cost
