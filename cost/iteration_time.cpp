#include "cost/iteration_time.h"

#include <algorithm>
#include <map>

#include "support/integer_math.h"
#include "support/units.h"

namespace graphpipe::cost {

namespace {

using ir::StageId;

/// Items that one replica runs in a step.
double items_per_replica(const ir::StageGraph& graph, StageId stage) {
  const ir::StageChoice& choice = graph.stages[stage].choice;
  const int64_t items = micro_batch_count(graph, stage);
  if (choice.mode != ir::ReplicaMode::kRoundRobin) return static_cast<double>(items);
  return static_cast<double>(ceil_div(items, std::ssize(choice.devices)));
}

/// Seconds that each stage spends summing gradients over its replicas and over the copies of shared weights.
IdMap<StageId, double> reduce_seconds(const ir::StageGraph& graph, const ir::Cluster& cluster,
                                      const IdMap<StageId, StageCost>& costs) {
  IdMap<StageId, double> seconds(graph.stages.size(), 0.0);
  for (StageId stage : graph.stage_ids()) seconds[stage] = costs[stage].all_reduce;
  for (const ir::SharedWeights& shared : graph.shared) {
    const double reduce = copies_time(graph, cluster, shared).count;
    for (StageId stage : shared.stages) seconds[stage] += reduce;
  }
  return seconds;
}

/// The same, and then updating weights; a device updates those of its stages one after the other.
IdMap<StageId, double> finish_seconds(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs,
                                      IdMap<StageId, double> reduce) {
  const std::map<ir::DeviceId, double> updates = device_sums(graph, [&](StageId stage) { return costs[stage].update; });
  for (StageId stage : graph.stage_ids()) {
    double longest = 0;
    for (ir::DeviceId device : graph.stages[stage].choice.devices) longest = std::max(longest, updates.at(device));
    reduce[stage] += longest;
  }
  return reduce;
}

/// The ramps, with `after` seconds following the last backward of each stage.
IdMap<StageId, Ramps> ramps_with_ends(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs,
                                      const IdMap<StageId, int64_t>& items, const IdMap<StageId, double>& after) {
  IdMap<StageId, Ramps> result(graph.stages.size());
  for (StageId stage : graph.stage_ids()) result[stage].tail = after[stage];
  // Edges are sorted by source and lead to higher ids, so a stage's ramps are final before they are read.
  for (const ir::StageEdge& edge : graph.edges) {
    const StageCost& from = costs[edge.from];
    const ir::StageChoice& choice = graph.stages[edge.from].choice;
    const auto needed = static_cast<double>(ceil_div(items[edge.to], choice.samples_of_turns()));
    const Ramps& above = result[edge.from];
    Ramps& below = result[edge.to];
    below.head = std::max(below.head, above.head + needed * from.forward + from.hop_down);
    if (edge.gradient_count == 0) continue;
    below.tail = std::max(below.tail, from.hop_up + needed * from.backward() + above.tail);
  }
  return result;
}

}  // namespace

IdMap<StageId, Ramps> ramps(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs,
                            const IdMap<StageId, int64_t>& items) {
  return ramps_with_ends(graph, costs, items, IdMap<StageId, double>(graph.stages.size(), 0.0));
}

namespace {

/// What a device works in a step, for how many stages: which of them can start first, which is followed by the least,
/// and which has the most work.
struct DeviceWork {
  double seconds = 0;
  size_t stages = 0;
  StageId first, last, heaviest;
};

std::map<ir::DeviceId, DeviceWork> works_of_devices(const ir::StageGraph& graph, const IdMap<StageId, double>& own,
                                                    const IdMap<StageId, Ramps>& paths) {
  std::map<ir::DeviceId, DeviceWork> works;
  for (const StageId stage : graph.stage_ids())
    for (const ir::DeviceId device : graph.stages[stage].choice.devices) {
      DeviceWork& work = works[device];
      work.seconds += own[stage];
      const bool is_only = work.stages++ == 0;
      if (is_only || paths[stage].head < paths[work.first].head) work.first = stage;
      if (is_only || paths[stage].tail < paths[work.last].tail) work.last = stage;
      if (is_only || own[stage] > own[work.heaviest]) work.heaviest = stage;
    }
  return works;
}

}  // namespace

IterationTime iteration_time(const ir::StageGraph& graph, const ir::Cluster& cluster) {
  const IdMap<StageId, StageCost> costs = stage_costs(graph, cluster);
  IdMap<StageId, int64_t> items(graph.stages.size());
  for (StageId stage : graph.stage_ids()) items[stage] = graph.stages[stage].choice.micro_batch.count;
  const IdMap<StageId, Ramps> paths = ramps(graph, costs, items);
  const IdMap<StageId, double> reduce = reduce_seconds(graph, cluster, costs);
  const IdMap<StageId, Ramps> reduced = ramps_with_ends(graph, costs, items, reduce);
  const IdMap<StageId, Ramps> finished = ramps_with_ends(graph, costs, items, finish_seconds(graph, costs, reduce));
  const InFlightPlan in_flight_plan = in_flight(graph, cluster);
  // With too few samples in flight, the bottleneck slows down to the period that they sustain.
  const double slowdown = in_flight_plan.period / std::max(bottleneck_period(graph, costs), kMinSeconds);
  IdMap<StageId, double> own(graph.stages.size());
  for (StageId stage : graph.stage_ids())
    own[stage] = items_per_replica(graph, stage) * std::max(costs[stage].item(), costs[stage].messages) *
                 std::max(slowdown, 1.0);
  IterationTime longest;
  const auto try_path = [&](StageId limiting, double head, double steady, StageId last) {
    const IterationTime time{.warm_up = head,
                             .steady = steady,
                             .drain = paths[last].tail,
                             .reduce = reduced[last].tail - paths[last].tail,
                             .update = finished[last].tail - reduced[last].tail,
                             .limiting = limiting};
    if (!longest.limiting.valid() || time.total() > longest.total()) longest = time;
  };
  for (StageId stage : graph.stage_ids()) try_path(stage, paths[stage].head, own[stage], stage);
  DeviceWork busiest;
  for (const auto& [device, work] : works_of_devices(graph, own, finished)) {
    // A device works for all of its stages, from the first that may start to the last.
    if (work.stages > 1) try_path(work.heaviest, paths[work.first].head, work.seconds, work.last);
    if (busiest.stages == 0 || work.seconds > busiest.seconds) busiest = work;
  }
  longest.busiest = busiest.heaviest;
  longest.busiest_seconds = busiest.seconds;
  longest.fits = in_flight_plan.fits;
  longest.slowed_by_memory = slowdown > 1 + 1e-6;
  return longest;
}

}  // namespace graphpipe::cost
