#include "cost/iteration_time.h"

#include <algorithm>
#include <map>

#include "cost/link_loads.h"
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

/// Seconds that the items of each stage take, or their messages.
IdMap<StageId, double> own_seconds(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs,
                                   double slowdown) {
  IdMap<StageId, double> seconds;
  for (StageId stage : graph.stage_ids())
    seconds.push_back(items_per_replica(graph, stage) * std::max(costs[stage].item(), costs[stage].messages) *
                      slowdown);
  return seconds;
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

/// Seconds of a step that the busiest shared link carries messages from one stage to another.
using PairSeconds = std::map<std::pair<StageId, StageId>, double>;

PairSeconds seconds_of_pairs(const std::vector<LinkLoad>& loads) {
  PairSeconds longest;
  for (const LinkLoad& load : loads) {
    PairSeconds of_link;
    for (const LinkLoad::Part& part : load.parts) of_link[{part.from, part.to}] += part.seconds;
    for (const auto& [pair, seconds] : of_link) longest[pair] = std::max(longest[pair], seconds);
  }
  return longest;
}

/// Seconds a sample at which outputs of stages, and gradients that go back through the stages above, can follow each
/// other: as the slowest stage or shared link on the way lets them.
struct Pace {
  double down = 0, up = 0;
};

class Paces {
 public:
  Paces(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs, PairSeconds pairs)
      : batch_(static_cast<double>(graph.batch.count)), pairs_(std::move(pairs)) {
    for (StageId stage : graph.stage_ids()) {
      const auto samples = static_cast<double>(graph.stages[stage].choice.samples_of_turns());
      paces_.push_back({.down = costs[stage].forward / samples, .up = costs[stage].backward() / samples});
    }
    for (const ir::StageEdge& edge : graph.edges) {
      Pace& below = paces_[edge.to];
      below = {.down = std::max(below.down, down(edge)), .up = std::max(below.up, up(edge))};
    }
  }
  /// What reaches the edge's reader, and the gradients that it sends back.
  double down(const ir::StageEdge& edge) const { return std::max(paces_[edge.from].down, on_link(edge.from, edge.to)); }
  double up(const ir::StageEdge& edge) const { return std::max(paces_[edge.from].up, on_link(edge.to, edge.from)); }

 private:
  double on_link(StageId from, StageId to) const {
    const auto pair = pairs_.find({from, to});
    return pair == pairs_.end() ? 0 : pair->second / batch_;
  }

  double batch_;
  PairSeconds pairs_;
  IdMap<StageId, Pace> paces_;
};

/// The ramps, with `after` seconds following the last backward of each stage. `paces`: those at which the items of a
/// stage follow each other where a reader needs several; null: each right after the one before.
IdMap<StageId, Ramps> ramps_with_ends(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs,
                                      const IdMap<StageId, int64_t>& items, const IdMap<StageId, double>& after,
                                      const Paces* paces) {
  IdMap<StageId, Ramps> result(graph.stages.size());
  for (StageId stage : graph.stage_ids()) result[stage].tail = after[stage];
  // Edges are sorted by source and lead to higher ids, so a stage's ramps are final before they are read.
  for (const ir::StageEdge& edge : graph.edges) {
    const StageCost& from = costs[edge.from];
    const auto samples = static_cast<double>(graph.stages[edge.from].choice.samples_of_turns());
    const int64_t needed = ceil_div(items[edge.to], graph.stages[edge.from].choice.samples_of_turns());
    double down = from.forward, up = from.backward();
    if (paces != nullptr && needed > 1) {
      down = std::max(down, samples * paces->down(edge));
      up = std::max(up, samples * paces->up(edge));
    }
    const auto more = static_cast<double>(needed - 1);
    const Ramps& above = result[edge.from];
    Ramps& below = result[edge.to];
    below.head = std::max(below.head, above.head + from.forward + more * down + from.hop_down);
    if (edge.gradient_count == 0) continue;
    below.tail = std::max(below.tail, from.hop_up + from.backward() + more * up + above.tail);
  }
  return result;
}

}  // namespace

IdMap<StageId, Ramps> ramps(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs,
                            const IdMap<StageId, int64_t>& items) {
  return ramps_with_ends(graph, costs, items, IdMap<StageId, double>(graph.stages.size(), 0.0), nullptr);
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

/// When the first of a link's messages can be sent, at the earliest, which stage then has least to do after the last of
/// them, and which message takes longest.
struct LinkPath {
  double head = kInfinity;
  StageId last;
  LinkLoad::Part largest;
};

LinkPath path_of(const LinkLoad& load, const IdMap<StageId, StageCost>& costs, const IdMap<StageId, Ramps>& paths) {
  LinkPath path;
  for (const LinkLoad::Part& part : load.parts) {
    const StageCost& sender = costs[part.from];
    path.head = std::min(path.head, paths[part.from].head + (part.is_gradient ? sender.item() : sender.forward));
    if (!path.last.valid() || paths[part.to].tail < paths[path.last].tail) path.last = part.to;
    if (part.seconds > path.largest.seconds) path.largest = part;
  }
  return path;
}

}  // namespace

IterationTime iteration_time(const ir::StageGraph& graph, const ir::Cluster& cluster) {
  const IdMap<StageId, StageCost> costs = stage_costs(graph, cluster);
  IdMap<StageId, int64_t> items(graph.stages.size());
  for (StageId stage : graph.stage_ids()) items[stage] = graph.stages[stage].choice.micro_batch.count;
  const std::vector<LinkLoad> loads = shared_link_loads(graph, cluster);
  const Paces paces(graph, costs, seconds_of_pairs(loads));
  const auto ramps_to = [&](const IdMap<StageId, double>& after) {
    return ramps_with_ends(graph, costs, items, after, &paces);
  };
  const IdMap<StageId, Ramps> paths = ramps_to(IdMap<StageId, double>(graph.stages.size(), 0.0));
  const IdMap<StageId, double> reduce = reduce_seconds(graph, cluster, costs);
  const IdMap<StageId, Ramps> reduced = ramps_to(reduce);
  const IdMap<StageId, Ramps> finished = ramps_to(finish_seconds(graph, costs, reduce));
  const InFlightPlan in_flight_plan = in_flight(graph, cluster);
  // With too few samples in flight, the bottleneck slows down to the period that they sustain.
  const double slowdown = in_flight_plan.period / std::max(bottleneck_period(graph, costs), kMinSeconds);
  const IdMap<StageId, double> own = own_seconds(graph, costs, std::max(slowdown, 1.0));
  IterationTime longest;
  const auto try_path = [&](StageId limiting, double head, double steady, StageId last) {
    const IterationTime time{.warm_up = head,
                             .steady = steady,
                             .drain = paths[last].tail,
                             .reduce = reduced[last].tail - paths[last].tail,
                             .update = finished[last].tail - reduced[last].tail,
                             .limiting = limiting};
    const bool is_longest = !longest.limiting.valid() || time.total() > longest.total();
    if (is_longest) longest = time;
    return is_longest;
  };
  for (StageId stage : graph.stage_ids()) try_path(stage, paths[stage].head, own[stage], stage);
  DeviceWork busiest;
  for (const auto& [device, work] : works_of_devices(graph, own, finished)) {
    // A device works for all of its stages, from the first that may start to the last.
    if (work.stages > 1) try_path(work.heaviest, paths[work.first].head, work.seconds, work.last);
    if (busiest.stages == 0 || work.seconds > busiest.seconds) busiest = work;
  }
  for (const LinkLoad& load : loads) {
    const LinkPath path = path_of(load, costs, paths);
    if (!try_path(path.largest.from, path.head, load.seconds, path.last)) continue;
    longest.link_seconds = load.seconds;
    longest.link_from = path.largest.from;
    longest.link_to = path.largest.to;
  }
  longest.busiest = busiest.heaviest;
  longest.busiest_seconds = busiest.seconds;
  longest.fits = in_flight_plan.fits;
  longest.slowed_by_memory = slowdown > 1 + 1e-6;
  return longest;
}

}  // namespace graphpipe::cost
