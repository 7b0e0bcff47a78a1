#include "partitioner/heterogeneous/device_order.h"

#include <algorithm>
#include <map>

#include "cost/memory.h"
#include "cost/stage_cost.h"
#include "partitioner/heterogeneous/group_packing.h"
#include "support/union_find.h"

namespace graphpipe::partitioner {

namespace {

using ir::DeviceId;
using ir::StageId;

int kind_of(const ir::PlanGraph& graph, size_t device) {
  return device < graph.kind_of_device.size() ? graph.kind_of_device[device] : 0;
}

/// Gives the stages of `order` the devices of `devices` one after the other, as many as each has; ascending within a
/// stage.
ir::Assignment handed_out(ir::Assignment plan, const std::vector<StageId>& order,
                          const std::vector<DeviceId>& devices) {
  size_t next = 0;
  for (const StageId stage : order) {
    for (DeviceId& device : plan.choice[stage].devices) device = devices[next++];
    std::sort(plan.choice[stage].devices.begin(), plan.choice[stage].devices.end());
  }
  return plan;
}

/// Stages in descending order of their numbers.
std::vector<StageId> descending(const ir::StageGraph& stages, const std::vector<double>& number) {
  std::vector<StageId> order;
  for (const StageId stage : stages.stage_ids()) order.push_back(stage);
  std::stable_sort(order.begin(), order.end(),
                   [&](StageId a, StageId b) { return number[a.index()] > number[b.index()]; });
  return order;
}

/// Seconds per sample of one replica's compute.
std::vector<double> loads(const ir::StageGraph& stages, const ir::Cluster& cluster) {
  std::vector<double> load;
  for (const cost::StageCost& cost : cost::stage_costs(stages, cluster)) load.push_back(cost.compute_per_sample());
  return load;
}

std::vector<double> needs(const ir::StageGraph& stages) {
  std::vector<double> bytes;
  for (const StageId stage : stages.stage_ids()) {
    const Samples one = stages.stages[stage].choice.micro_batch;
    bytes.push_back(static_cast<double>(cost::stage_memory(stages, stage, one).total().count));
  }
  return bytes;
}

std::vector<DeviceId> by_memory(const ir::Cluster& cluster, std::vector<DeviceId> devices) {
  std::stable_sort(devices.begin(), devices.end(), [&](DeviceId a, DeviceId b) {
    return cluster.devices[a].memory.count > cluster.devices[b].memory.count;
  });
  return devices;
}

/// An order that puts stages with much traffic next to each other: edges, those with the most bytes per step first,
/// join stages into paths, and the paths follow one another.
/// Example: 0 -> (1 | 2) -> 3, 4 MiB over 0 -> 2 and 1 -> 3, 1 MiB over the others. The first two edges make the paths
/// 0 2 and 1 3, which the others cannot extend: the order is 0 2 1 3.
std::vector<StageId> by_traffic(const ir::StageGraph& stages) {
  std::vector<std::pair<double, std::pair<StageId, StageId>>> edges;
  for (const auto& [pair, sum] : traffic_of(stages)) edges.push_back({-sum, pair});
  std::sort(edges.begin(), edges.end());
  const size_t count = stages.stages.size();
  UnionFind<size_t> paths(count);
  std::vector<size_t> next(count, count);
  std::vector<bool> has_before(count, false);
  for (const auto& [unused, pair] : edges) {
    const size_t from = pair.first.index(), to = pair.second.index();
    if (next[from] < count || has_before[to] || !paths.join(from, to)) continue;
    next[from] = to;
    has_before[to] = true;
  }
  std::vector<StageId> order;
  for (size_t first = 0; first < count; ++first)
    for (size_t stage = first; !has_before[first] && stage < count; stage = next[stage])
      order.push_back(StageId(stage));
  return order;
}

}  // namespace

std::vector<int> device_classes(const ir::PlanGraph& graph, const ir::Cluster& cluster) {
  std::map<std::pair<int, int64_t>, int> numbers;
  std::vector<int> classes;
  for (size_t device = 0; device < cluster.devices.size(); ++device) {
    const std::pair key(kind_of(graph, device), cluster.devices[DeviceId(device)].memory.count);
    classes.push_back(numbers.try_emplace(key, static_cast<int>(numbers.size())).first->second);
  }
  return classes;
}

bool devices_differ(const ir::PlanGraph& graph, const ir::Cluster& cluster) {
  const std::vector<int> classes = device_classes(graph, cluster);
  return std::any_of(classes.begin(), classes.end(), [](int c) { return c > 0; });
}

std::vector<DeviceId> by_speed(const ir::PlanGraph& graph, const ir::Cluster& cluster) {
  std::vector<double> seconds(static_cast<size_t>(std::max(1, graph.kind_count())), 0);
  for (const ir::PlanNode& node : graph.nodes)
    for (size_t kind = 0; kind < node.by_kind.size(); ++kind)
      seconds[kind] += node.by_kind[kind].forward.at(1.0) + node.by_kind[kind].input_gradient.at(1.0) +
                       node.by_kind[kind].weight_gradient.at(1.0);
  std::vector<DeviceId> order;
  for (const DeviceId device : ids<DeviceId>(cluster.devices.size())) order.push_back(device);
  order = by_memory(cluster, std::move(order));
  const auto time = [&](DeviceId device) { return seconds[static_cast<size_t>(kind_of(graph, device.index()))]; };
  std::stable_sort(order.begin(), order.end(), [&](DeviceId a, DeviceId b) { return time(a) < time(b); });
  return order;
}

void take_prices_of(ir::PlanGraph& graph, int kind) {
  for (ir::PlanNode& node : graph.nodes) {
    if (node.by_kind.empty()) continue;
    const ir::PassSeconds& seconds = node.by_kind[static_cast<size_t>(kind)];
    node.forward = seconds.forward;
    node.input_gradient = seconds.input_gradient;
    node.weight_gradient = seconds.weight_gradient;
  }
}

void place_in_order(ir::Assignment& plan) {
  size_t next = 0;
  for (ir::StageChoice& choice : plan.choice)
    for (DeviceId& device : choice.devices) device = DeviceId(next++);
}

size_t max_other_placements(const ir::Cluster& cluster) { return cluster.levels.size() > 1 ? 3 : 2; }

std::vector<ir::Assignment> other_placements(const ir::PlanGraph& graph, const ir::Cluster& cluster,
                                             const ir::StageGraph& stages, const ir::Assignment& plan) {
  std::vector<ir::Assignment> found;
  if (devices_differ(graph, cluster)) {
    const std::vector<DeviceId> fastest = by_speed(graph, cluster);
    found.push_back(handed_out(plan, descending(stages, loads(stages, cluster)), fastest));
    found.push_back(handed_out(plan, descending(stages, needs(stages)), by_memory(cluster, fastest)));
  }
  if (cluster.levels.size() > 1) {
    std::vector<DeviceId> in_order;
    for (const DeviceId device : ids<DeviceId>(cluster.devices.size())) in_order.push_back(device);
    found.push_back(handed_out(plan, by_traffic(stages), in_order));
  }
  return found;
}

}  // namespace graphpipe::partitioner
