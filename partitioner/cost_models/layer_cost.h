#pragma once
// What a plan over layers costs, in the terms of the planner that made it, or of another one.

#include <vector>

#include "partitioner/cost_models/layer_convention.h"
#include "partitioner/cost_models/layer_plan.h"

namespace graphpipe::partitioner {

struct StagePrice {
  /// Seconds, already divided over the replicas.
  double compute = 0, reduction = 0, traffic = 0;
  double total = 0;
  /// Bytes of one device.
  double memory = 0;
};

struct LayerPlanPrice {
  /// Per stage, without the outer levels.
  std::vector<StagePrice> stages;
  /// The largest stage time of all levels, seconds.
  double bottleneck = 0;
  /// The largest memory of an accelerator that exceeds the limit, minus the limit; zero or less where the plan fits.
  double shortfall = 0;
};

/// Needs: a verified graph, a plan whose layers exist, groups (where there are any) that cover all stages per level.
LayerPlanPrice price_layer_plan(const LayerGraph& graph, const LayerPlan& plan, const LayerMachine& machine,
                                const LayerConvention& convention);

/// Bytes that leave a set of layers which holds the predecessors of its members, by one of the two boundary rules.
double boundary_bytes(const LayerGraph& graph, const LayerAdjacency& adjacency, const IdSet<LayerId>& before,
                      CutRule rule);

}  // namespace graphpipe::partitioner
