#pragma once
// What a plan costs in one unit of work, in the terms of the planner that made it, or of another one.

#include <span>
#include <vector>

#include "partitioner/cost_models/cost_model.h"
#include "partitioner/cost_models/unit_request.h"

namespace graphpipe::partitioner {

struct StagePrice {
  /// Seconds, already divided over the replicas.
  double compute = 0, reduction = 0, traffic = 0;
  double total = 0;
  /// Bytes of one device.
  double memory = 0;
};

struct PlanPrice {
  /// Per stage, without the outer levels.
  std::vector<StagePrice> stages;
  /// The largest stage time of all levels, seconds.
  double bottleneck = 0;
  /// The largest memory of an accelerator that exceeds the limit, minus the limit; zero or less where the plan fits.
  double shortfall = 0;
};

/// Needs: a plan of the prices' graph, groups (where there are any) that cover all stages per level.
PlanPrice price_plan(const UnitPrices& prices, const ir::Assignment& plan, const MachineLevels& machine,
                     const CostModel& model, std::span<const StageGroup> groups = {});

}  // namespace graphpipe::partitioner
