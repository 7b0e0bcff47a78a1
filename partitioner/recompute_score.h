#pragma once
// The objective of a plan of a layer graph from the lists of layers: the second opinion of check_layer_plan. One
// function per kind of score; written against the formulas, not against the planners or cost/layer_cost.

#include "partitioner/layer_planners.h"

namespace graphpipe::partitioner {

struct RecomputedScore {
  /// In the answer's unit.
  double objective = 0;
  /// Of the fullest accelerator, bytes; zero where the convention does not look at memory.
  double memory = 0;
};

RecomputedScore recompute_score(const LayerPlanRequest& request, const LayerPlanAnswer& answer);

/// Units per second of the unit "s", "ms" or "us". Needs: one of these.
double units_per_second(std::string_view unit);

}  // namespace graphpipe::partitioner
