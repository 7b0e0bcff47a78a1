#pragma once
// PipeDream's terms: a linear pipeline and, around it, pipelines of groups on the outer levels of a machine. Each
// boundary of a pipeline is paid by the stages at its ends.

#include "partitioner/cost_models/plan_price.h"

namespace graphpipe::partitioner {

/// The models whose cuts are counted at boundaries.
constexpr bool is_priced_by_level(TrafficRule cut) {
  return cut == TrafficRule::kNone || cut == TrafficRule::kBoundaryTensors || cut == TrafficRule::kBoundaryAntichain;
}

/// As price_plan. Needs: is_priced_by_level(model.traffic).
PlanPrice price_levels(const UnitPrices& prices, const ir::Assignment& plan, const MachineLevels& machine,
                       const CostModel& model, std::span<const StageGroup> groups);

}  // namespace graphpipe::partitioner
