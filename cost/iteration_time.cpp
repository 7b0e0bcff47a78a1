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

/// Seconds that the items of each stage take.
IdMap<StageId, double> own_seconds(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs,
                                   double slowdown) {
  IdMap<StageId, double> seconds;
  for (StageId stage : graph.stage_ids())
    seconds.push_back(items_per_replica(graph, stage) * costs[stage].item() * slowdown);
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

/// What goes from one stage to another.
struct Traffic {
  /// Seconds of a step that the busiest of its links carries it.
  double seconds = 0;
  /// Seconds until what the sender has of a micro-batch is there.
  double hop = 0;
};
using TrafficOfPairs = std::map<std::pair<StageId, StageId>, Traffic>;

/// The smaller of two stages' items, or of their micro-batches.
Samples smaller_item(const ir::StageChoice& a, const ir::StageChoice& b) {
  return std::min(a.item_samples(), b.item_samples());
}

TrafficOfPairs traffic_of_pairs(const ir::StageGraph& graph, const ir::Cluster& cluster,
                                const std::vector<LinkLoad>& loads) {
  std::map<std::pair<StageId, StageId>, double> bytes;  // of an item
  for (const ir::StageEdge& edge : graph.edges) {
    const Samples item = smaller_item(graph.stages[edge.from].choice, graph.stages[edge.to].choice);
    bytes[{edge.from, edge.to}] += edge.bytes.at(item);
    bytes[{edge.to, edge.from}] += edge.gradient_bytes.at(item);
  }
  TrafficOfPairs result;
  for (const LinkLoad& load : loads) {
    std::map<std::pair<StageId, StageId>, double> of_link;
    for (const LinkLoad::Part& part : load.parts) of_link[{part.from, part.to}] += part.seconds;
    const ir::LinkLevel& level = cluster.levels[load.link.level];
    for (const auto& [pair, seconds] : of_link) {
      const auto items = std::max(micro_batch_count(graph, pair.first), micro_batch_count(graph, pair.second));
      // All replicas may send over it at once.
      const double item = std::max(bytes.at(pair) / level.bandwidth.count, seconds / static_cast<double>(items));
      Traffic& traffic = result[pair];
      traffic.seconds = std::max(traffic.seconds, seconds);
      traffic.hop = std::max(traffic.hop, level.latency.count + item);
    }
  }
  return result;
}

/// Seconds a sample at which outputs of stages, and gradients that go back through the stages above, can follow each
/// other: as the slowest stage or shared link on the way lets them.
struct Pace {
  double down = 0, up = 0;
};

class Paces {
 public:
  Paces(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs, TrafficOfPairs pairs)
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

  double hop_down(const ir::StageEdge& edge) const { return traffic(edge.from, edge.to).hop; }
  double hop_up(const ir::StageEdge& edge) const { return traffic(edge.to, edge.from).hop; }

 private:
  Traffic traffic(StageId from, StageId to) const {
    const auto pair = pairs_.find({from, to});
    return pair == pairs_.end() ? Traffic() : pair->second;
  }
  double on_link(StageId from, StageId to) const { return traffic(from, to).seconds / batch_; }

  double batch_;
  TrafficOfPairs pairs_;
  IdMap<StageId, Pace> paces_;
};

/// The ramps, with `after` seconds following the last backward of each stage. `paces`: those at which the items of a
/// stage follow each other where a reader needs several, and hops from one stage to another; null: each item right
/// after the one before, and the hops of the costs.
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
    const double hop_down = paces == nullptr ? from.hop_down : paces->hop_down(edge);
    const double hop_up = paces == nullptr ? from.hop_up : paces->hop_up(edge);
    const auto more = static_cast<double>(needed - 1);
    const Ramps& above = result[edge.from];
    Ramps& below = result[edge.to];
    below.head = std::max(below.head, above.head + from.forward + more * down + hop_down);
    if (edge.gradient_count == 0) continue;
    below.tail = std::max(below.tail, hop_up + from.backward() + more * up + above.tail);
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

/// When the first of a link's messages can be sent, at the earliest, the stage that has least to do after the last of
/// them, its items for that one, and the message that takes longest.
struct LinkPath {
  double head = kInfinity, last_item = 0;
  StageId last;
  LinkLoad::Part largest;
};

LinkPath path_of(const LinkLoad& load, const IdMap<StageId, StageCost>& costs, const IdMap<StageId, Ramps>& paths) {
  LinkPath path;
  double shortest = kInfinity;
  for (const LinkLoad::Part& part : load.parts) {
    const StageCost &sender = costs[part.from], &receiver = costs[part.to];
    path.head = std::min(path.head, paths[part.from].head + (part.is_gradient ? sender.item() : sender.forward));
    const double item = part.is_gradient ? receiver.backward() : receiver.item();
    if (item + paths[part.to].tail < shortest) {
      shortest = item + paths[part.to].tail;
      path.last_item = item;
      path.last = part.to;
    }
    if (part.seconds > path.largest.seconds) path.largest = part;
  }
  return path;
}

/// Of stages whose sums of gradients go over one link: the first to have its gradients, all sums, the shortest update.
IterationTime one_ring_after_the_other(const std::vector<StageId>& stages, const IdMap<StageId, StageCost>& costs,
                                       const IdMap<StageId, Ramps>& paths, const IdMap<StageId, double>& own) {
  const auto end = [&](StageId stage) { return paths[stage].head + own[stage]; };
  const StageId first = *std::ranges::min_element(stages, {}, end);
  IterationTime time{.warm_up = paths[first].head, .steady = own[first], .update = kInfinity, .limiting = first};
  for (const StageId stage : stages) {
    time.reduce += costs[stage].all_reduce;
    time.update = std::min(time.update, costs[stage].update);
  }
  return time;
}

/// The longest of the paths that are tried.
class LongestPath {
 public:
  /// What follows the last item of each stage: all, with its sum of gradients, and with its update. They outlive it.
  LongestPath(const IdMap<StageId, Ramps>& paths, const IdMap<StageId, Ramps>& reduced,
              const IdMap<StageId, Ramps>& finished)
      : paths_(paths), reduced_(reduced), finished_(finished) {}

  bool take(const IterationTime& time) {
    const bool is_longest = !longest_.limiting.valid() || time.total() > longest_.total();
    if (is_longest) longest_ = time;
    return is_longest;
  }
  bool take(StageId limiting, double head, double steady, StageId last, double last_item = 0) {
    return take({.warm_up = head,
                 .steady = steady,
                 .drain = last_item + paths_[last].tail,
                 .reduce = reduced_[last].tail - paths_[last].tail,
                 .update = finished_[last].tail - reduced_[last].tail,
                 .limiting = limiting});
  }
  void take_link(const LinkLoad& load, const LinkPath& path, double slowdown) {
    if (!take(path.largest.from, path.head, slowdown * load.seconds, path.last, path.last_item)) return;
    longest_.link_seconds = slowdown * load.seconds;
    longest_.link_from = path.largest.from;
    longest_.link_to = path.largest.to;
  }
  IterationTime result() const { return longest_; }

 private:
  const IdMap<StageId, Ramps>&paths_, &reduced_, &finished_;
  IterationTime longest_;
};

}  // namespace

IterationTime iteration_time(const ir::StageGraph& graph, const ir::Cluster& cluster) {
  const IdMap<StageId, StageCost> costs = stage_costs(graph, cluster);
  IdMap<StageId, int64_t> items(graph.stages.size());
  for (StageId stage : graph.stage_ids()) items[stage] = graph.stages[stage].choice.micro_batch.count;
  const std::vector<LinkLoad> loads = link_loads(graph, cluster);
  const Paces paces(graph, costs, traffic_of_pairs(graph, cluster, loads));
  const auto ramps_to = [&](const IdMap<StageId, double>& after) {
    return ramps_with_ends(graph, costs, items, after, &paces);
  };
  const IdMap<StageId, Ramps> paths = ramps_to(IdMap<StageId, double>(graph.stages.size(), 0.0));
  const IdMap<StageId, double> reduce = reduce_seconds(graph, cluster, costs);
  const IdMap<StageId, Ramps> reduced = ramps_to(reduce);
  const IdMap<StageId, Ramps> finished = ramps_to(finish_seconds(graph, costs, reduce));
  const InFlightPlan in_flight_plan = in_flight(graph, cluster, costs, bottleneck_period(graph, costs, loads));
  // With too few samples in flight, the bottleneck slows down to the period that they sustain.
  const double slowdown = in_flight_plan.slowdown();
  const IdMap<StageId, double> own = own_seconds(graph, costs, slowdown);
  LongestPath longest(paths, reduced, finished);
  for (StageId stage : graph.stage_ids()) longest.take(stage, paths[stage].head, own[stage], stage);
  DeviceWork busiest;
  for (const auto& [device, work] : works_of_devices(graph, own, finished)) {
    // A device works for all of its stages, from the first that may start to the last.
    if (work.stages > 1) longest.take(work.heaviest, paths[work.first].head, work.seconds, work.last);
    if (busiest.stages == 0 || work.seconds > busiest.seconds) busiest = work;
  }
  for (const auto& [link, stages] : shared_rings(graph, cluster))
    longest.take(one_ring_after_the_other(stages, costs, paths, own));
  for (const LinkLoad& load : loads) longest.take_link(load, path_of(load, costs, paths), slowdown);
  IterationTime time = longest.result();
  time.busiest = busiest.heaviest;
  time.busiest_seconds = busiest.seconds;
  time.fits = in_flight_plan.fits;
  time.slowed_by_memory = slowdown > 1 + 1e-6;
  return time;
}

}  // namespace graphpipe::cost
