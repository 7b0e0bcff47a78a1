#pragma once
// PipeDream's planner (Harlap et al., SOSP 2019, as its program computes): the linear pipeline of replicated stages
// with the smallest bottleneck per mini-batch, over the levels of a machine (docs/planners.md, section 2).
//
// Exact over all downsets where their tables fit the budget. Wider graphs are searched over the cuts of several
// topological orders and the neighbourhoods of the best of them; the bound is then the work over all devices.

#include "partitioner/cost_models/unit_request.h"

namespace graphpipe::partitioner {

std::span<const Quirk> pipedream_quirks();
Result<UnitAnswer> plan_pipedream(const UnitRequest& request);

/// How PipeDream prices a plan under the request's options and quirks.
CostModel pipedream_model(const UnitRequest& request);

}  // namespace graphpipe::partitioner
