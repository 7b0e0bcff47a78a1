#pragma once
// The cost of one stage: the conventions that planners, in-flight numbers, closed forms and bounds share.
//
// Conventions (GraphPipe, equation 1, with overlap):
// - One replica works on items of u samples: u = ceil(b / d) under split, b under round robin.
// - A stage receives and sends each distinct value once per item, and a gradient for each value that has one. Messages
//   run beside compute. They occupy the link that joins the devices of both stages for bytes / bandwidth, and arrive
//   one latency later: latency lengthens the way, never the period.
// - In the objective, which searches go by before they know on which devices the stages lie, all of a stage's messages
//   share one link. Periods and steps of plans count each link, of which there is one for each way (link_loads.h).
// - Gradients of a replicated stage are all-reduced round a ring once per step, after its last backward; the
//   copies of a weight in several stages are summed after that. A device that sends, receives and adds does one after
//   the other.

#include <algorithm>
#include <functional>
#include <map>
#include <span>

#include "ir/cluster.h"
#include "ir/stage_graph.h"

namespace graphpipe::cost {

struct LinkLoad;

struct StageCost {
  /// Seconds of one item of one replica. Backward holds input and weight gradients, and the recomputed forward.
  double forward = 0, input_gradient = 0, weight_gradient = 0;
  double backward() const { return input_gradient + weight_gradient; }
  double item() const { return forward + backward(); }
  /// Seconds that all messages of one item occupy a link that they share, both directions, in and out.
  double messages = 0;
  /// Seconds from the end of an item until its readers have everything that it sends, and the same for the gradients
  /// that come back: the cost of a hop to any reader on the way down and on the way up.
  double hop_down = 0, hop_up = 0;
  /// Seconds of the all-reduce of one step, and of its update of the weights (update_time.h).
  double all_reduce = 0, update = 0;
  /// Samples that all replicas together finish in the time of one item.
  double samples_per_item_time = 1;

  double compute_per_sample() const { return item() / samples_per_item_time; }
  double messages_per_sample() const { return messages / samples_per_item_time; }
  /// The steady-state period of the stage, seconds per sample, when messages overlap with compute and share a link.
  double period() const { return std::max(compute_per_sample(), messages_per_sample()); }
  /// GraphPipe's objective: period plus the stage's share of the all-reduce.
  double time_per_sample(Samples batch) const { return period() + all_reduce / static_cast<double>(batch.count); }
};

/// Seconds of the sum over the copies of a weight that several stages share.
Seconds copies_time(const ir::StageGraph& graph, const ir::Cluster& cluster, const ir::SharedWeights& shared);

StageCost stage_cost(const ir::StageGraph& graph, const ir::Cluster& cluster, ir::StageId stage);
IdMap<ir::StageId, StageCost> stage_costs(const ir::StageGraph& graph, const ir::Cluster& cluster);

/// Of each device the sum over the stages that it holds, and the largest of these sums.
std::map<ir::DeviceId, double> device_sums(const ir::StageGraph& graph,
                                           const std::function<double(ir::StageId)>& per_stage);
double largest_device_sum(const ir::StageGraph& graph, const std::function<double(ir::StageId)>& per_stage);

/// Seconds per sample that no order of the plan can beat in steady state: the largest compute of a device, which is the
/// sum over the stages that it holds, or what a link carries (link_loads.h), whichever is longer.
double bottleneck_period(const ir::StageGraph& graph, const ir::Cluster& cluster,
                         const IdMap<ir::StageId, StageCost>& costs);
/// The same, where the loads of all links are known.
double bottleneck_period(const ir::StageGraph& graph, const IdMap<ir::StageId, StageCost>& costs,
                         std::span<const LinkLoad> loads);
/// GraphPipe's objective of a plan: the largest time per sample of a device.
double bottleneck_time_per_sample(const ir::StageGraph& graph, const ir::Cluster& cluster);

}  // namespace graphpipe::cost
