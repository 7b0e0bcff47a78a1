#include "scheduler/analysis/schedule_bound.h"

#include <algorithm>
#include <limits>
#include <map>

#include "cost/iteration_time.h"
#include "cost/lower_bound.h"
#include "support/integer_math.h"
#include "support/units.h"

namespace graphpipe::scheduler {
namespace {

using cost::Ramps;

/// Seconds of one item.
struct ItemTime {
  double forward = 0, input_gradient = 0, weight_gradient = 0;
};

/// Samples of a replica's smallest item; 0 where it is not known, because the first or last micro-batch may be smaller.
int64_t min_item(const StageGraph& graph, const ir::StageChoice& choice) {
  if (graph.batch.count % choice.micro_batch.count != 0) return 0;
  const auto replicas = static_cast<int64_t>(choice.devices.size());
  return choice.mode == ir::ReplicaMode::kSplit ? choice.micro_batch.count / replicas : choice.micro_batch.count;
}

ItemTime item_time(const StageGraph& graph, StageId id) {
  const ir::Stage& stage = graph.stages[id];
  const int64_t min_samples = min_item(graph, stage.choice);
  if (min_samples == 0) return {};
  const double samples = static_cast<double>(min_samples);
  ItemTime time{.forward = stage.forward.at(samples)};
  if (!stage.has_backward) return time;
  time.input_gradient = stage.input_gradient.at(samples);
  time.weight_gradient = stage.weight_gradient.at(samples);
  return time;
}

/// The least latency between a replica of one stage and one of the other.
double min_latency(const StageGraph& graph, const ir::Cluster& cluster, const ir::StageEdge& edge) {
  double shortest = kInfinity;
  for (const ir::DeviceId from : graph.stages[edge.from].choice.devices)
    for (const ir::DeviceId to : graph.stages[edge.to].choice.devices)
      shortest = std::min(shortest, from == to ? 0.0 : cluster.link(from, to).latency.count);
  return shortest;
}

/// The least that a stage's ramps take, whatever its items are: a gradient of weights that is a pass of its own keeps
/// no other stage waiting (`split`).
IdMap<StageId, Ramps> min_ramps(const StageGraph& graph, const ir::Cluster& cluster, bool split) {
  IdMap<StageId, Ramps> ramps(graph.stages.size());
  IdMap<StageId, ItemTime> times(graph.stages.size());
  for (const StageId stage : graph.stage_ids()) {
    times[stage] = item_time(graph, stage);
    if (split) ramps[stage].tail = times[stage].weight_gradient;
  }
  // Edges are sorted by their source and lead to higher stages, so what is read of a stage is final.
  for (const ir::StageEdge& edge : graph.edges) {
    const ir::StageChoice& above = graph.stages[edge.from].choice;
    const int64_t at_once = above.samples_of_turns();
    const int64_t wanted = std::max<int64_t>(1, min_item(graph, graph.stages[edge.to].choice));
    const double items = static_cast<double>(ceil_div(wanted, at_once));
    const ItemTime& time = times[edge.from];
    const double latency = min_latency(graph, cluster, edge);
    ramps[edge.to].head = std::max(ramps[edge.to].head, ramps[edge.from].head + items * time.forward + latency);
    if (!edge.carries_gradient()) continue;
    const double backward = time.input_gradient + (split ? 0 : time.weight_gradient);
    ramps[edge.to].tail = std::max(ramps[edge.to].tail, latency + items * backward + ramps[edge.from].tail);
  }
  return ramps;
}

/// The work of one stage, or of all stages, on one device.
struct Work {
  double weights = 0, without_weights = 0;
  double head = kInfinity, tail = kInfinity;

  void add(const ir::Stage& stage, const Action& action, const Ramps& ramps) {
    const double samples = static_cast<double>(action.range.size());
    const double forward = stage.forward.at(samples), input_gradient = stage.input_gradient.at(samples);
    const double weight_gradient = stage.weight_gradient.at(samples);
    const bool whole = action.op == ActionOp::kBackward;
    if (action.op == ActionOp::kForward || action.op == ActionOp::kRecompute) without_weights += forward;
    if (action.op == ActionOp::kInputGradient || whole) without_weights += input_gradient;
    if (action.op == ActionOp::kWeightGradient || whole) weights += weight_gradient;
    head = std::min(head, ramps.head);
    tail = std::min(tail, ramps.tail);
  }
  double bound(bool split) const {
    const double work = weights + without_weights;
    return head + std::max(work, (split ? without_weights : work) + tail);
  }
};

}  // namespace

double schedule_bound(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule) {
  bool split = false;
  for (const ir::Program& program : schedule.programs)
    for (const Action& action : program.actions) split = split || action.op == ActionOp::kInputGradient;
  const IdMap<StageId, Ramps> ramps = min_ramps(graph, cluster, split);
  double bound = cost::step_bound(graph, cluster).link;
  for (const ir::Program& program : schedule.programs) {
    std::map<int32_t, Work> by_stage;
    Work device;
    for (const Action& action : program.actions) {
      if (!ir::is_compute(action.op)) continue;
      const StageId stage(static_cast<size_t>(action.stage));
      by_stage[action.stage].add(graph.stages[stage], action, ramps[stage]);
      device.add(graph.stages[stage], action, ramps[stage]);
    }
    if (by_stage.empty()) continue;
    bound = std::max(bound, device.bound(split));
    for (const auto& [stage, work] : by_stage) bound = std::max(bound, work.bound(split));
  }
  return bound;
}

}  // namespace graphpipe::scheduler
