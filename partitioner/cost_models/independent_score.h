#pragma once
// The objective of a plan of a layer graph from the lists of layers: the second opinion of check_layer_plan. One
// function per kind of score; written against the formulas, not against the planners or cost/layer_cost.

#include <set>

#include "partitioner/cost_models/layer_request.h"

namespace graphpipe::partitioner {

struct RecomputedScore {
  /// In the answer's unit.
  double objective = 0;
  /// Of the fullest accelerator, bytes; zero where the convention does not look at memory.
  double memory = 0;
};

RecomputedScore recompute_score(const LayerPlanRequest& request, const LayerPlanAnswer& answer);

/// DAPPLE's speed-up, and torchgpipe's heaviest block in whole microseconds.
double dapple_score(const LayerPlanRequest& request, const LayerPlanAnswer& answer);
double heaviest_block(const LayerGraph& graph, const LayerPlan& plan);
/// Bytes that a boundary after `before` is charged for, by one of the boundary rules.
double recomputed_boundary(const LayerGraph& graph, const std::set<LayerId>& before, CutRule rule);

/// Units per second of the unit "s", "ms" or "us". Needs: one of these.
double units_per_second(std::string_view unit);

}  // namespace graphpipe::partitioner
