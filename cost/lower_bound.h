#pragma once
// Bounds that no schedule of a plan, or no plan of a graph, can beat (docs/schedules.md, section 7).

#include <cstdint>

#include "cost/iteration_time.h"
#include "ir/plan_graph.h"

namespace graphpipe::cost {

/// What limits a step, in seconds; the bound is the largest.
struct StepBound {
  double path_and_work = 0;  // max over stages: first possible start + all work + what follows its last item
  double device_work = 0;    // max over devices: all work of its stages, and the updates of their weights
  double link = 0;           // busiest_link()
  double total() const { return std::max({path_and_work, device_work, link}); }
};

/// The link with most to carry in a step, bytes over bandwidth, and the stages between which most of that goes. Those
/// of replicas count where all of them take one link, such as that between two hosts.
struct BusyLink {
  double seconds = 0;
  ir::StageId from, to;
};
BusyLink busiest_link(const ir::StageGraph& graph, const ir::Cluster& cluster);

/// A bound on the step of one plan, whatever the order, with unsplit or split backward; also without its updates of
/// weights.
enum class CountsUpdates : uint8_t { kNo, kYes };
StepBound step_bound(const ir::StageGraph& graph, const ir::Cluster& cluster,
                     CountsUpdates updates = CountsUpdates::kYes);

/// Bounds on every plan of a graph on a cluster. Costs are taken at the sample count at which a sample is cheapest, and
/// if devices differ, on the device that suits best.
struct PlanBound {
  double work = 0;           // seconds per sample: all work over all devices
  double largest_node = 0;   // seconds per sample: the largest node at its best replica count
  double critical_path = 0;  // seconds: the longest forward and input-gradient path of one sample
  double updates = 0;        // seconds: one update of all weights over all devices; 0 where they are of several kinds
  /// GraphPipe's objective: seconds per sample.
  double time_per_sample() const { return std::max(work, largest_node); }
  double step(Samples batch) const {
    const auto samples = static_cast<double>(batch.count);
    return std::max({work * samples + updates, largest_node * samples, critical_path});
  }
};
PlanBound plan_bound(const ir::PlanGraph& graph, const ir::Cluster& cluster);

/// The minimum seconds of F + I + W per sample over item sizes 1 to `max_item`: powers of two, and `max_item` itself;
/// on the fastest kind of device.
double cheapest_seconds_per_sample(const ir::PlanNode& node, Samples max_item);

/// A lower bound on the total seconds that all devices work in a step, in any plan with micro-batches of at most
/// `max_micro_batch` samples (the whole batch for nodes that need it).
double min_work(const ir::PlanGraph& graph, Samples max_micro_batch);

/// Bytes that every plan holds, whatever its stages, micro-batches and order: weights and buffers, and for trained ones
/// a gradient and the optimizer state, each on at least one device.
struct MemoryBound {
  Bytes all;       // of all devices together
  Bytes one_node;  // of the device that holds `node`, whose weights are the largest
  ir::PlanNodeId node;
};
/// `state_parts`: the number of devices among which a plan may shard the state of a weight, 1 if it does not. Needs:
/// nodes without alternatives, whose devices share the weights.
MemoryBound memory_bound(const ir::PlanGraph& graph, int state_parts);

}  // namespace graphpipe::cost
