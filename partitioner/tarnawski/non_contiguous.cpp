#include "partitioner/tarnawski/non_contiguous.h"

#include <algorithm>
#include <map>

#include "partitioner/cost_models/plan_price.h"
#include "partitioner/tarnawski/placement_annealing.h"
#include "partitioner/tarnawski/planner.h"

namespace graphpipe::partitioner {
namespace {

/// Per node, the device that the plan gives it; nothing if the layers of one node are on different devices.
std::optional<DeviceOfNode> placement_of(const UnitPrices& prices, const ir::Assignment& plan,
                                         const MaxLoadGraph& graph) {
  const auto device_of_layer = [&](uint32_t layer) {
    return static_cast<uint32_t>(plan.choice[plan.stage_of[prices.nodes[layer]]].devices.front().index());
  };
  DeviceOfNode device_of;
  for (const MaxLoadGraph::Node& node : graph.nodes) {
    device_of.push_back(device_of_layer(node.layers.front()));
    for (const uint32_t layer : node.layers)
      if (device_of_layer(layer) != device_of.back()) return std::nullopt;
  }
  return device_of;
}

/// Runs of equal work along the order of the nodes; what no accelerator runs goes where `other` has it.
DeviceOfNode device_by_share(const MaxLoadGraph& graph, int accelerators, const DeviceOfNode& other) {
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
ir::Assignment plan_of_runs(const UnitPrices& prices, const MaxLoadGraph& graph, const std::vector<DeviceRun>& runs,
                            int accelerators) {
  ir::Assignment plan;
  std::map<uint32_t, int> number_of;
  int next_accelerator = 0, next_cpu = accelerators;
  for (const DeviceRun& run : runs) {
    const bool on_cpu = run.device >= static_cast<uint32_t>(accelerators);
    const auto [known, is_new] = number_of.try_emplace(run.device, on_cpu ? next_cpu : next_accelerator);
    if (is_new) ++(on_cpu ? next_cpu : next_accelerator);
    add_stage(prices, graph.layers_of(run.nodes), on_devices(known->second, 1), {}, plan);
  }
  return plan;
}

std::vector<DeviceOfNode> starts_of(const UnitRequest& request, const Result<UnitAnswer>& contiguous,
                                    const MaxLoadGraph& graph, const MaxLoadOptions& options) {
  std::vector<DeviceOfNode> starts;
  if (contiguous.ok())
    if (auto start = placement_of(*request.prices, contiguous->plan, graph)) starts.push_back(*std::move(start));
  if (const auto balanced = balanced_placement(graph, options)) {
    starts.push_back(*balanced);
    starts.push_back(device_by_share(graph, options.accelerators, *balanced));
  }
  return starts;
}

}  // namespace

CostModel non_contiguous_model() {
  CostModel model = max_throughput_model();
  model.pools_devices = true;
  return model;
}

Result<UnitAnswer> plan_non_contiguous(const UnitRequest& request, const Result<UnitAnswer>& contiguous,
                                       const Deadline& deadline) {
  if (!contiguous.ok() && contiguous.problems().front().code != Code::kNoFeasiblePlan) return contiguous;
  const UnitPrices& prices = *request.prices;
  const MaxLoadGraph graph = fuse_for_schedules(prices);
  const MaxLoadOptions options{.accelerators = request.machine.devices(),
                               .cpus = request.machine.cpus,
                               .memory = request.machine.memory,
                               .stop = [&] { return deadline.passed(); }};
  const std::vector<DeviceOfNode> starts = starts_of(request, contiguous, graph, options);
  const double bound = min_max_load(graph, options);
  PlacementResult found;
  if (!starts.empty()) found = search_placements(graph, options, starts, bound);
  if (found.device_of.empty()) return contiguous;
  found.device_of = with_fewer_crossings(graph, options, std::move(found.device_of));

  const double units = prices.units_per_second();
  UnitAnswer answer{.plan = plan_of_runs(prices, graph, runs_of(graph, found.device_of), options.accelerators),
                    .model = non_contiguous_model()};
  answer.unit = prices.time_unit();
  answer.objective = units * price_plan(prices, answer.plan, request.machine, answer.model).bottleneck;
  answer.bound = std::min(answer.objective, units * bound);
  answer.complete = found.complete;
  if (!answer.complete) answer.stopped = deadline.reason();
  answer.states = contiguous.ok() ? contiguous->states : 0;
  answer.pairs = found.tried + (contiguous.ok() ? contiguous->pairs : 0);
  answer.search_seconds = deadline.seconds();
  return answer;
}

}  // namespace graphpipe::partitioner
