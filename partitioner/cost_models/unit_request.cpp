#include "partitioner/cost_models/unit_request.h"

#include "partitioner/cost_models/check_unit_plan.h"

namespace graphpipe::partitioner {

Result<UnitAnswer> search_unit(const PlannerEntry& planner, const UnitRequest& request) {
  GP_CHECK(planner.search != nullptr && request.prices != nullptr && !request.machine.levels.empty());
  GP_TRY(UnitAnswer answer, planner.search(request));
  const Diagnostics problems = check_unit_plan(request, answer);
  if (!problems.empty()) return problems;
  return answer;
}

void add_stage(const UnitPrices& prices, std::span<const uint32_t> layers, ir::StageChoice choice,
               std::span<const int> variants, ir::Assignment& plan) {
  if (plan.stage_of.empty()) plan.stage_of.resize(prices.size());
  if (!variants.empty() && plan.alternative.empty()) plan.alternative.resize(prices.size(), 0);
  const int degree = choice.degree;
  const ir::StageId stage = plan.choice.push_back(std::move(choice));
  for (size_t i = 0; i < layers.size(); ++i) {
    plan.stage_of[prices.nodes[layers[i]]] = stage;
    if (!plan.alternative.empty())
      plan.alternative[prices.nodes[layers[i]]] =
          alternative_number(prices.node(layers[i]), degree, variants.empty() ? 0 : variants[i]);
  }
}

ir::StageChoice on_devices(int first, int replicas, int degree) {
  ir::StageChoice choice{.degree = degree};
  for (int replica = 0; replica < replicas; ++replica)
    choice.devices.emplace_back(static_cast<size_t>(first + replica * degree));
  return choice;
}

ir::Assignment with_stages_recomputing(const ir::PlanGraph& unit, ir::Assignment plan) {
  for (const ir::PlanNodeId node : ids<ir::PlanNodeId>(plan.alternative.size()))
    if (plan.alternative[node] > 0 && !unit.nodes[node].alternatives.empty())
      plan.choice[plan.stage_of[node]].recompute = true;
  plan.alternative = {};
  return plan;
}

std::vector<std::vector<uint32_t>> layers_of_stages(const UnitPrices& prices, const ir::Assignment& plan) {
  std::vector<std::vector<uint32_t>> layers(plan.choice.size());
  for (uint32_t layer = 0; layer < prices.size(); ++layer)
    layers[plan.stage_of[prices.nodes[layer]].index()].push_back(layer);
  return layers;
}

const ir::NodeAlternative* chosen_alternative(const UnitPrices& prices, const ir::Assignment& plan, uint32_t layer) {
  const ir::PlanNode& node = prices.node(layer);
  if (!plan.alternative.empty() && !node.alternatives.empty())
    return &node.alternatives[static_cast<size_t>(plan.alternative[prices.nodes[layer]])];
  const auto own = alternatives_of(node, plan.choice[plan.stage_of[prices.nodes[layer]]].degree);
  return own.empty() ? nullptr : &own.front();
}

int copies_around(std::span<const StageGroup> groups, size_t stage) {
  int copies = 1;
  for (const StageGroup& group : groups)
    if (static_cast<int>(stage) >= group.first && static_cast<int>(stage) < group.first + group.count)
      copies *= group.replicas;
  return copies;
}

}  // namespace graphpipe::partitioner
