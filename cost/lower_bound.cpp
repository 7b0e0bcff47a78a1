#include "cost/lower_bound.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "cost/update_time.h"
#include "support/units.h"

namespace graphpipe::cost {

namespace {

using ir::StageId;

/// Seconds of all items that the busiest replica runs in a step; the last micro-batch may be smaller.
double work_of(const ir::StageGraph& graph, StageId id) {
  const ir::Stage& stage = graph.stages[id];
  const int replicas = static_cast<int>(stage.choice.devices.size());
  const bool recomputes = stage.choice.recompute && stage.has_backward;
  const auto item = [&](int64_t n) {
    const double again = recomputes ? stage.forward.at(static_cast<double>(n)) : 0;
    return n == 0 ? 0.0 : stage.total(Samples(n)) + again;
  };
  const int64_t count = micro_batch_count(graph, id);
  double busiest = 0;
  for (int replica : {0, replicas - 1}) {
    const bool round_robin = stage.choice.mode == ir::ReplicaMode::kRoundRobin;
    // All micro-batches but the last have the same size.
    int64_t whole = count - 1;
    if (round_robin) whole = (count - 1 + replicas - 1 - replica) / replicas;
    double seconds = item(item_range(graph, id, count - 1, replica).size());
    const int64_t sample_index = round_robin ? replica : 0;
    if (whole > 0) seconds += static_cast<double>(whole) * item(item_range(graph, id, sample_index, replica).size());
    busiest = std::max(busiest, seconds);
  }
  return busiest;
}

/// Seconds that every replica of the stage updates weights, at least once in a step.
double shortest_update(const ir::StageGraph& graph, const ir::Cluster& cluster, StageId id) {
  const ir::Stage& stage = graph.stages[id];
  if (!stage.is_trained()) return 0;
  double shortest = kInfinity;
  for (const ir::DeviceId device : stage.choice.devices)
    shortest = std::min(shortest, update_time(update_work(stage), cluster, device).count);
  return shortest;
}

/// The link that all messages from one stage to the other take; none where there are several: the schedule then
/// decides how many bytes each has.
std::optional<ir::LinkId> common_link(const ir::Cluster& cluster, const ir::StageChoice& from,
                                      const ir::StageChoice& to) {
  if (cluster.levels.empty()) return std::nullopt;
  const ir::DeviceId sender = from.devices.front(), receiver = to.devices.front();
  const ir::LinkId link = cluster.link_between(sender, receiver);
  if (link.from == link.to) return std::nullopt;  // one device
  const auto begins_there = [&](ir::DeviceId device) { return cluster.link_between(device, receiver) == link; };
  const auto ends_there = [&](ir::DeviceId device) { return cluster.link_between(sender, device) == link; };
  const bool is_common = std::ranges::all_of(from.devices, begins_there) && std::ranges::all_of(to.devices, ends_there);
  return is_common ? std::optional(link) : std::nullopt;
}

}  // namespace

BusyLink busiest_link(const ir::StageGraph& graph, const ir::Cluster& cluster) {
  struct Load {
    double seconds = 0, largest = 0;
    StageId from, to;
    void add(double more, StageId a, StageId b) {
      seconds += more;
      if (more > largest) std::tie(largest, from, to) = std::tuple(more, a, b);
    }
  };
  std::map<ir::LinkId, Load> loads;
  for (const ir::StageEdge& edge : graph.edges) {
    if (edge.batch != ir::BatchKind::kAxis) continue;
    const auto link = common_link(cluster, graph.stages[edge.from].choice, graph.stages[edge.to].choice);
    if (!link) continue;
    const double items = static_cast<double>(micro_batch_count(graph, edge.to));
    const double samples = static_cast<double>(graph.batch.count) / items;
    const auto seconds = [&](const ir::SampleFunction& bytes) {
      return items * bytes.at(samples) / cluster.levels[link->level].bandwidth.count;
    };
    loads[*link].add(seconds(edge.bytes), edge.from, edge.to);
    if (edge.carries_gradient()) loads[link->reversed()].add(seconds(edge.gradient_bytes), edge.to, edge.from);
  }
  BusyLink busiest;
  for (const auto& [key, load] : loads)
    if (load.seconds > busiest.seconds) busiest = {.seconds = load.seconds, .from = load.from, .to = load.to};
  return busiest;
}

StepBound step_bound(const ir::StageGraph& graph, const ir::Cluster& cluster, CountsUpdates updates) {
  const IdMap<StageId, StageCost> whole_costs = stage_costs(graph, cluster);
  IdMap<StageId, StageCost> costs = whole_costs;
  // A lower bound must not assume that messages on one link follow each other: keep only the latency of a hop.
  double latency = cluster.levels.empty() ? 0 : kInfinity;
  for (const ir::LinkLevel& level : cluster.levels) latency = std::min(latency, level.latency.count);
  for (StageCost& cost : costs) {
    cost.hop_down = cost.hop_down > 0 ? std::min(cost.hop_down, latency) : 0;
    cost.hop_up = cost.hop_up > 0 ? std::min(cost.hop_up, latency) : 0;
    cost.weight_gradient = 0;  // may be delayed until the device is idle
  }
  // So may a forward that runs again, before its gradient arrives.
  for (const StageId id : graph.stage_ids()) {
    const ir::Stage& stage = graph.stages[id];
    if (stage.choice.recompute && stage.has_backward)
      costs[id].input_gradient = stage.input_gradient.at(static_cast<double>(stage.choice.item_samples().count));
  }
  // The item on the path may be the smaller last one: it costs less, and needs fewer of its producer's items.
  IdMap<StageId, int64_t> items(graph.stages.size());
  for (StageId stage : graph.stage_ids()) {
    const ir::StageChoice& choice = graph.stages[stage].choice;
    items[stage] = choice.micro_batch.count;
    if (const int64_t last = graph.batch.count % items[stage]; last != 0) {
      items[stage] = last;
      costs[stage].forward = costs[stage].input_gradient = 0;
    }
    // A replica that divides items with others waits for its own samples alone.
    if (choice.mode == ir::ReplicaMode::kSplit) items[stage] /= std::ssize(choice.devices);
  }
  const IdMap<StageId, Ramps> paths = ramps(graph, costs, items);
  StepBound bound;
  std::map<ir::DeviceId, double> load;
  for (StageId stage : graph.stage_ids()) {
    const double work = work_of(graph, stage);
    const double update = updates == CountsUpdates::kYes ? shortest_update(graph, cluster, stage) : 0;
    bound.path_and_work = std::max(bound.path_and_work, paths[stage].head + work + update);
    const double without_last_weights =
        work - static_cast<double>(micro_batch_count(graph, stage)) * whole_costs[stage].weight_gradient;
    bound.path_and_work = std::max(bound.path_and_work, paths[stage].head + without_last_weights + paths[stage].tail);
    if (graph.stages[stage].choice.devices.size() == 1)
      load[graph.stages[stage].choice.devices.front()] += work + update;
  }
  for (const auto& [device, work] : load) bound.device_work = std::max(bound.device_work, work);
  bound.link = busiest_link(graph, cluster).seconds;
  return bound;
}

namespace {

/// Seconds of F + I + W per sample, in items of this size.
double per_sample(const ir::PassSeconds& seconds, Samples item) {
  return seconds.total(item) / static_cast<double>(item.count);
}

double cheapest_of(const ir::PassSeconds& seconds, Samples max_item) {
  double cheapest = per_sample(seconds, max_item);
  for (int64_t n = 1; n < max_item.count; n *= 2) cheapest = std::min(cheapest, per_sample(seconds, Samples(n)));
  return cheapest;
}

/// The same for a node of a graph: one that works on the whole batch only has that item size.
double cheapest_in(const ir::PlanGraph& graph, const ir::PlanNode& node, const ir::PassSeconds& seconds) {
  return node.scope == ir::SampleScope::kBatch ? per_sample(seconds, graph.batch) : cheapest_of(seconds, graph.batch);
}

double cheapest_in(const ir::PlanGraph& graph, const ir::PlanNode& node) {
  if (node.by_kind.empty()) return cheapest_in(graph, node, static_cast<const ir::PassSeconds&>(node));
  double cheapest = kInfinity;
  for (const ir::PassSeconds& seconds : node.by_kind) cheapest = std::min(cheapest, cheapest_in(graph, node, seconds));
  return cheapest;
}

/// The number of devices of each kind.
std::vector<double> devices_by_kind(const ir::PlanGraph& graph) {
  std::vector<double> count(static_cast<size_t>(graph.kind_count()), 0);
  for (const int kind : graph.kind_of_device) count[static_cast<size_t>(kind)] += 1;
  return count;
}

/// A bound on the period, in seconds per sample, if each device gets a share of the work that suits its speed.
///
/// Let devices have weights y that sum to 1. The period is at least the weighted mean of the devices' work. A node of
/// cost p adds y p of the device that runs it to this mean, so at least the smallest y p. We take y inverse to a
/// device's cost of the whole graph, which is exact where kinds differ by one factor: with a device of 1 s per sample
/// and one of 3 s, y is 3/4 and 1/4, and the bound is 3/4 s.
double shared_work(const ir::PlanGraph& graph, const std::vector<double>& count) {
  std::vector<double> all(count.size(), 0);
  for (const ir::PlanNode& node : graph.nodes)
    for (size_t kind = 0; kind < count.size(); ++kind) all[kind] += cheapest_in(graph, node, node.by_kind[kind]);
  double weights = 0, work = 0;
  for (size_t kind = 0; kind < count.size(); ++kind) weights += count[kind] / std::max(all[kind], kMinSeconds);
  for (const ir::PlanNode& node : graph.nodes) {
    double cheapest = kInfinity;
    for (size_t kind = 0; kind < count.size(); ++kind)
      if (count[kind] > 0)
        cheapest = std::min(cheapest, cheapest_in(graph, node, node.by_kind[kind]) / std::max(all[kind], kMinSeconds));
    work += cheapest;
  }
  return work / weights;
}

/// Seconds per sample of a node with a replica on every device; on the fastest one if it works on several samples
/// together.
double spread(const ir::PlanGraph& graph, const ir::PlanNode& node, const std::vector<double>& count) {
  double fastest = kInfinity, speed = 0;
  for (size_t kind = 0; kind < count.size(); ++kind) {
    const double seconds = cheapest_in(graph, node, node.by_kind[kind]);
    if (count[kind] > 0) fastest = std::min(fastest, seconds);
    speed += count[kind] / std::max(seconds, kMinSeconds);
  }
  return node.may_have_replicas() ? 1 / speed : fastest;
}

}  // namespace

double cheapest_seconds_per_sample(const ir::PlanNode& node, Samples max_item) {
  if (node.by_kind.empty()) return cheapest_of(node, max_item);
  double cheapest = kInfinity;
  for (const ir::PassSeconds& seconds : node.by_kind) cheapest = std::min(cheapest, cheapest_of(seconds, max_item));
  return cheapest;
}

double min_work(const ir::PlanGraph& graph, Samples max_micro_batch) {
  // Any node may be in a stage that works on the whole batch.
  const bool may_be_whole = graph.has_batch_scope();
  double seconds = 0;
  for (const ir::PlanNode& node : graph.nodes) {
    double cheapest = kInfinity;
    if (node.scope != ir::SampleScope::kBatch) cheapest = cheapest_seconds_per_sample(node, max_micro_batch);
    if (may_be_whole) {
      const auto whole = [&](const ir::PassSeconds& on) { cheapest = std::min(cheapest, per_sample(on, graph.batch)); };
      if (node.by_kind.empty()) whole(node);
      for (const ir::PassSeconds& on_kind : node.by_kind) whole(on_kind);
    }
    seconds += cheapest;
  }
  return seconds * static_cast<double>(graph.batch.count);
}

namespace {

double fastest(const UpdateWork& work, const ir::Cluster& cluster) {
  double seconds = kInfinity;
  for (const ir::DeviceId device : ids<ir::DeviceId>(cluster.devices.size()))
    seconds = std::min(seconds, update_time(work, cluster, device).count);
  return seconds;
}

/// Every weight that is trained, on one device each.
UpdateWork min_updates(const ir::PlanGraph& graph) {
  IdMap<ir::WeightGroupId, bool> is_trained(graph.weight_groups.size(), false);
  for (const ir::PlanNode& node : graph.nodes)
    for (const ir::WeightGroupId group : node.weights)
      is_trained[group] = is_trained[group] || (node.has_backward && graph.weight_groups[group].trainable);
  UpdateWork work;
  for (const ir::WeightGroupId id : ids<ir::WeightGroupId>(graph.weight_groups.size())) {
    const ir::WeightGroup& group = graph.weight_groups[id];
    if (is_trained[id]) work.add(group, updated_bytes(group, 1, graph.batch));
  }
  return work;
}

}  // namespace

PlanBound plan_bound(const ir::PlanGraph& graph, const ir::Cluster& cluster) {
  PlanBound bound;
  const double devices = static_cast<double>(cluster.devices.size());
  const std::vector<double> count = devices_by_kind(graph);
  IdMap<ir::PlanNodeId, double> below(graph.nodes.size(), 0.0);
  const ir::PlanAdjacency adjacency = adjacency_of(graph);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const ir::PlanNodeId id(i);
    const ir::PlanNode& node = graph.nodes[id];
    const double seconds = cheapest_in(graph, node);
    bound.work += seconds / devices;
    const double alike = node.may_have_replicas() ? seconds / devices : seconds;
    bound.largest_node = std::max(bound.largest_node, count.empty() ? alike : spread(graph, node, count));
    double path = 0;
    for (ir::PlanNodeId reader : adjacency.successors[id]) path = std::max(path, below[reader]);
    // The batch is divided by as many replicas as there are devices at best.
    const double item = node.scope != ir::SampleScope::kBatch ? 1.0
                        : node.may_have_replicas() ? std::ceil(static_cast<double>(graph.batch.count) / devices)
                                                   : static_cast<double>(graph.batch.count);
    double pass = node.forward.at(item) + node.input_gradient.at(item);
    for (const ir::PassSeconds& seconds : node.by_kind)
      pass = std::min(pass, seconds.forward.at(item) + seconds.input_gradient.at(item));
    below[id] = path + pass;
    bound.critical_path = std::max(bound.critical_path, below[id]);
  }
  if (!count.empty()) bound.work = shared_work(graph, count);
  // Of several kinds, those that compute slowly may do all updates beside the work of the others.
  if (count.empty()) bound.updates = fastest(min_updates(graph), cluster) / devices;
  return bound;
}

namespace {

/// Bytes that a device holds of a weight group: if it trains it, also the gradient and the optimizer state.
Bytes held_bytes(const ir::PlanGraph& graph, const ir::WeightGroup& weights, bool trained, int state_parts) {
  const auto bytes = static_cast<double>(weights.bytes.count);
  const double state = graph.optimizer_state_per_weight_byte * bytes / state_parts;
  return weights.bytes + (trained ? weights.bytes + Bytes(static_cast<int64_t>(state)) : Bytes(0));
}

}  // namespace

MemoryBound memory_bound(const ir::PlanGraph& graph, int state_parts) {
  MemoryBound bound;
  IdMap<ir::WeightGroupId, bool> is_read(graph.weight_groups.size(), false), is_trained = is_read;
  for (const ir::PlanNodeId id : graph.node_ids()) {
    const ir::PlanNode& node = graph.nodes[id];
    Bytes own = node.buffer_bytes;
    bound.all += node.buffer_bytes;
    for (const ir::WeightGroupId group : std::set(node.weights.begin(), node.weights.end())) {
      const ir::WeightGroup& weights = graph.weight_groups[group];
      const bool trained = weights.trainable && node.has_backward;
      own += held_bytes(graph, weights, trained, state_parts);
      is_read[group] = true;
      is_trained[group] = is_trained[group] || trained;
    }
    if (own > bound.one_node || id.index() == 0) bound.one_node = own, bound.node = id;
  }
  // Together, the replicas of a stage hold at least one whole optimizer state, however it is sharded.
  for (const ir::WeightGroupId group : ids<ir::WeightGroupId>(graph.weight_groups.size()))
    if (is_read[group]) bound.all += held_bytes(graph, graph.weight_groups[group], is_trained[group], 1);
  return bound;
}

}  // namespace graphpipe::cost
