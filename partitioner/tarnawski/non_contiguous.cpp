#include "partitioner/tarnawski/non_contiguous.h"

#include <algorithm>
#include <map>

#include "partitioner/cost_models/layer_cost.h"
#include "partitioner/tarnawski/placement_annealing.h"
#include "partitioner/tarnawski/planner.h"

namespace graphpipe::partitioner {
namespace {

/// Nothing where layers of one node are in stages of different devices.
std::optional<DeviceOfNode> placement_of(const LayerPlan& plan, const MaxLoadGraph& graph, size_t layers) {
  std::vector<uint32_t> device_of_layer(layers, 0);
  for (const LayerStage& stage : plan.stages)
    for (const LayerId layer : stage.layers)
      device_of_layer[layer.index()] = static_cast<uint32_t>(stage.devices.front());
  DeviceOfNode device_of;
  for (const MaxLoadGraph::Node& node : graph.nodes) {
    device_of.push_back(device_of_layer[node.layers.front()]);
    for (const uint32_t layer : node.layers)
      if (device_of_layer[layer] != device_of.back()) return std::nullopt;
  }
  return device_of;
}

/// Runs of equal work along the order of the nodes; what no accelerator runs goes where `other` has it.
DeviceOfNode equal_runs(const MaxLoadGraph& graph, int accelerators, const DeviceOfNode& other) {
  double total = 0, sum = 0;
  for (const MaxLoadGraph::Node& node : graph.nodes) total += node.accelerator;
  DeviceOfNode device_of = other;
  for (uint32_t node = 0; node < graph.nodes.size(); ++node) {
    const double part = total > 0 ? sum / total : 0;
    sum += graph.nodes[node].accelerator;
    if (graph.nodes[node].on_accelerator)
      device_of[node] = static_cast<uint32_t>(std::min<double>(accelerators - 1, part * accelerators));
  }
  return device_of;
}

/// A stage for each run. Devices of a kind are numbered as they come.
LayerPlan plan_of_runs(const MaxLoadGraph& graph, const std::vector<DeviceRun>& runs, int accelerators) {
  LayerPlan plan;
  std::map<uint32_t, int> number_of;
  int next_accelerator = 0, next_cpu = accelerators;
  for (const DeviceRun& run : runs) {
    const bool on_cpu = run.device >= static_cast<uint32_t>(accelerators);
    const auto [known, is_new] = number_of.try_emplace(run.device, on_cpu ? next_cpu : next_accelerator);
    if (is_new) ++(on_cpu ? next_cpu : next_accelerator);
    LayerStage stage{.devices = {known->second}, .on_cpu = on_cpu};
    for (const uint32_t node : run.nodes)
      for (const uint32_t layer : graph.nodes[node].layers) stage.layers.emplace_back(layer);
    std::ranges::sort(stage.layers);
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

std::vector<DeviceOfNode> starts_of(const LayerPlanRequest& request, const Result<LayerPlanAnswer>& contiguous,
                                    const MaxLoadGraph& graph, const MaxLoadOptions& options) {
  std::vector<DeviceOfNode> starts;
  if (contiguous.ok())
    if (auto start = placement_of(contiguous->plan, graph, request.graph->layers.size()))
      starts.push_back(*std::move(start));
  if (const auto balanced = balanced_placement(graph, options)) {
    starts.push_back(*balanced);
    starts.push_back(equal_runs(graph, options.accelerators, *balanced));
  }
  return starts;
}

}  // namespace

LayerTerms non_contiguous_terms() {
  LayerTerms terms = max_throughput_terms();
  terms.convention.pools_devices = true;
  return terms;
}

Result<LayerPlanAnswer> plan_non_contiguous(const LayerPlanRequest& request, const Result<LayerPlanAnswer>& contiguous,
                                            const Deadline& deadline) {
  if (!contiguous.ok() && contiguous.problems().front().code != Code::kNoFeasiblePlan) return contiguous;
  const MaxLoadGraph graph = fuse_for_schedules(*request.graph);
  const MaxLoadOptions options{.accelerators = request.machine.devices(),
                               .cpus = request.machine.cpus,
                               .memory = request.machine.memory,
                               .stop = [&] { return deadline.passed(); }};
  const std::vector<DeviceOfNode> starts = starts_of(request, contiguous, graph, options);
  const double least = least_max_load(graph, options);
  PlacementResult found;
  if (!starts.empty()) found = search_placements(graph, options, starts, least);
  if (found.device_of.empty()) return contiguous;
  found.device_of = with_fewer_crossings(graph, options, std::move(found.device_of));

  const double units = request.graph->time_unit_seconds == 1 ? 1 : 1000;
  LayerPlanAnswer answer{.plan = plan_of_runs(graph, runs_of(graph, found.device_of), options.accelerators),
                         .terms = non_contiguous_terms()};
  answer.unit = units == 1 ? "s" : "ms";
  answer.objective =
      units * price_layer_plan(*request.graph, answer.plan, request.machine, answer.terms.convention).bottleneck;
  answer.bound = std::min(answer.objective, units * least);
  answer.complete = found.complete;
  if (!answer.complete) answer.stopped = deadline.reason();
  answer.states = contiguous.ok() ? contiguous->states : 0;
  answer.pairs = found.tried + (contiguous.ok() ? contiguous->pairs : 0);
  answer.search_seconds = deadline.seconds();
  return answer;
}

}  // namespace graphpipe::partitioner
