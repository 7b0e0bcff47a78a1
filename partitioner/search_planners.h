#pragma once
// The planners that run StageSearch: over the series-parallel tree (GraphPipe) and over one line of all nodes.

#include "partitioner/planners.h"

namespace graphpipe::partitioner {

/// GraphPipe: stages of the series-parallel tree, beside each other where branches are. Exact in the space of
/// search_space.h for graphs of at most kExactItems items; larger ones are coarsened.
Result<PlanAnswer> plan_graphpipe(const PlanRequest& request);

/// The best cut of one depth-first line of all nodes: the baseline. In-flight numbers are those of a chain of stages.
Result<PlanAnswer> plan_sequential(const PlanRequest& request);

/// The better of both, by `evaluate`.
Result<PlanAnswer> plan_auto(const PlanRequest& request);

/// Graphs with more items are coarsened to elements of at least 1/kExactItems of the total work.
inline constexpr double kExactItems = 192;

}  // namespace graphpipe::partitioner
