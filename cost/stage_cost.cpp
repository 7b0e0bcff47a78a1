#include "cost/stage_cost.h"

#include "cost/link_loads.h"
#include "cost/update_time.h"

namespace graphpipe::cost {

namespace {

using ir::DeviceId;
using ir::EdgeId;
using ir::StageId;

/// A value that leaves a stage, counted once however many stages read it.
struct BoundaryValue {
  double link_forward = 0, link_gradient = 0;  // seconds on the link
  double forward = 0, gradient = 0;            // seconds until arrival
};

/// The link that joins all devices of both stages.
const ir::LinkLevel& link_of(const ir::Cluster& cluster, const ir::StageChoice& a, const ir::StageChoice& b) {
  DeviceId low = a.devices.front(), high = low;
  for (const ir::StageChoice* choice : {&a, &b})
    for (DeviceId device : choice->devices) {
      low = std::min(low, device);
      high = std::max(high, device);
    }
  return cluster.link(low, high);
}

double link_seconds(const ir::LinkLevel& link, double bytes) { return bytes > 0 ? bytes / link.bandwidth.count : 0; }

double message_seconds(const ir::LinkLevel& link, double bytes) {
  return bytes > 0 ? link.latency.count + link_seconds(link, bytes) : 0;
}

bool on_one_device(const ir::StageChoice& a, const ir::StageChoice& b) {
  return a.devices.size() == 1 && a.devices == b.devices;
}

void add_boundary(const ir::StageGraph& graph, const ir::Cluster& cluster, StageId stage,
                  const std::vector<EdgeId>& edges, double samples, StageCost& cost) {
  std::map<ir::PlanValueId, BoundaryValue> sent;
  for (EdgeId id : edges) {
    const ir::StageEdge& edge = graph.edges[id];
    const ir::StageChoice& from = graph.stages[edge.from].choice;
    const ir::StageChoice& to = graph.stages[edge.to].choice;
    if (on_one_device(from, to)) continue;
    const ir::LinkLevel& link = link_of(cluster, from, to);
    const double down = edge.bytes.at(samples);
    const double up = edge.gradient_bytes.at(samples) / std::max(edge.gradient_count, 1);
    if (edge.to == stage) {
      cost.messages += link_seconds(link, down) + link_seconds(link, up);
    } else {
      BoundaryValue& value = sent[edge.value];
      value.link_forward = std::max(value.link_forward, link_seconds(link, down));
      value.link_gradient = std::max(value.link_gradient, link_seconds(link, up));
      value.forward = std::max(value.forward, message_seconds(link, down));
      value.gradient = std::max(value.gradient, message_seconds(link, up));
    }
  }
  for (const auto& [value, seconds] : sent) {
    cost.messages += seconds.link_forward + seconds.link_gradient;
    cost.hop_down += seconds.forward;
    cost.hop_up += seconds.gradient;
  }
}

/// `edges`: those that begin or end at the stage, ascending.
StageCost cost_of(const ir::StageGraph& graph, const ir::Cluster& cluster, StageId id,
                  const std::vector<EdgeId>& edges) {
  const ir::Stage& stage = graph.stages[id];
  const double samples = static_cast<double>(stage.choice.item_samples().count);
  StageCost cost;
  cost.forward = stage.forward.at(samples);
  cost.input_gradient = stage.input_gradient.at(samples);
  cost.weight_gradient = stage.weight_gradient.at(samples);
  if (stage.choice.recompute && stage.has_backward) cost.input_gradient += cost.forward;
  cost.samples_per_item_time = static_cast<double>(stage.choice.micro_batch.count);
  if (stage.choice.mode == ir::ReplicaMode::kRoundRobin)
    cost.samples_per_item_time *= static_cast<double>(stage.choice.devices.size());
  cost.all_reduce = exchange_time(cluster, stage).count;
  cost.update = update_time(graph, cluster, id).count;
  add_boundary(graph, cluster, id, edges, samples, cost);
  return cost;
}

}  // namespace

std::map<DeviceId, double> device_sums(const ir::StageGraph& graph, const std::function<double(StageId)>& per_stage) {
  std::map<DeviceId, double> sums;
  for (StageId stage : graph.stage_ids())
    for (DeviceId device : graph.stages[stage].choice.devices) sums[device] += per_stage(stage);
  return sums;
}

double largest_device_sum(const ir::StageGraph& graph, const std::function<double(StageId)>& per_stage) {
  double largest = 0;
  for (const auto& [device, sum] : device_sums(graph, per_stage)) largest = std::max(largest, sum);
  return largest;
}

Seconds copies_time(const ir::StageGraph& graph, const ir::Cluster& cluster, const ir::SharedWeights& shared) {
  std::vector<std::vector<DeviceId>> holders;
  for (StageId stage : shared.stages) holders.push_back(graph.stages[stage].choice.devices);
  return copies_sum_time(cluster, holders, shared.gradient_bytes);
}

StageCost stage_cost(const ir::StageGraph& graph, const ir::Cluster& cluster, StageId id) {
  std::vector<EdgeId> edges;
  for (EdgeId edge : graph.edge_ids())
    if (graph.edges[edge].from == id || graph.edges[edge].to == id) edges.push_back(edge);
  return cost_of(graph, cluster, id, edges);
}

IdMap<StageId, StageCost> stage_costs(const ir::StageGraph& graph, const ir::Cluster& cluster) {
  IdMap<StageId, std::vector<EdgeId>> edges(graph.stages.size());
  for (EdgeId edge : graph.edge_ids()) {
    edges[graph.edges[edge].from].push_back(edge);
    edges[graph.edges[edge].to].push_back(edge);
  }
  IdMap<StageId, StageCost> costs;
  for (StageId stage : graph.stage_ids()) costs.push_back(cost_of(graph, cluster, stage, edges[stage]));
  return costs;
}

double bottleneck_period(const ir::StageGraph& graph, const ir::Cluster& cluster,
                         const IdMap<StageId, StageCost>& costs) {
  return bottleneck_period(graph, costs, link_loads(graph, cluster));
}

double bottleneck_period(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs,
                         std::span<const LinkLoad> loads) {
  double longest = largest_device_sum(graph, [&](StageId stage) { return costs[stage].compute_per_sample(); });
  for (const LinkLoad& load : loads)
    longest = std::max(longest, load.seconds / static_cast<double>(graph.batch.count));
  return longest;
}

double bottleneck_time_per_sample(const ir::StageGraph& graph, const ir::Cluster& cluster) {
  const IdMap<StageId, StageCost> costs = stage_costs(graph, cluster);
  return largest_device_sum(graph, [&](StageId stage) { return costs[stage].time_per_sample(graph.batch); });
}

}  // namespace graphpipe::cost
