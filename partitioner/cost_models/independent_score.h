#pragma once
// The objective of a plan in units of work from its assignment: the second opinion of check_unit_plan. One function per
// kind of score; written against the formulas, not against the planners or plan_price.h.

#include <set>

#include "partitioner/cost_models/unit_request.h"

namespace graphpipe::partitioner {

/// The layers of a stage.
using LayerSet = std::set<uint32_t>;
/// Of each stage. Needs: a plan that places every node.
std::vector<LayerSet> members_of(const UnitPrices& prices, const ir::Assignment& plan);

struct RecomputedScore {
  /// In the answer's unit.
  double objective = 0;
  /// Of the fullest accelerator, bytes; zero where the convention does not look at memory.
  double memory = 0;
};

RecomputedScore recompute_score(const UnitRequest& request, const UnitAnswer& answer);

/// DAPPLE's speed-up, and torchgpipe's heaviest block in whole microseconds.
double dapple_score(const UnitRequest& request, const UnitAnswer& answer);
double heaviest_block(const UnitPrices& prices, const ir::Assignment& plan);
/// Bytes that a boundary after `before` is charged for, by one of the boundary rules.
double recomputed_boundary(const UnitPrices& prices, const LayerSet& before, TrafficRule rule);

}  // namespace graphpipe::partitioner
