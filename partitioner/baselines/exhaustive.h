#pragma once
// Every plan of a small graph: all ways to group its items into stages without a cycle, all replica counts, the
// requested micro-batch sizes (the same in every stage, k = 1).

#include "partitioner/planner.h"

namespace graphpipe::partitioner {

/// More items than this are refused: the groupings of 10 items are 115,975.
inline constexpr size_t kMaxExhaustiveGroups = 10;

/// Returns the plans that are best by objective and by `evaluate`. Errors: kLimitExceeded for a larger graph.
Result<PlanAnswer> plan_exhaustive(const PlanRequest& request);

/// The same where there are at most so many plans to price: those that might have a step below `known_step`.
/// Errors: also kLimitExceeded where there are more.
Result<PlanAnswer> plan_exhaustive_within(const PlanRequest& request, int64_t max_plans);

}  // namespace graphpipe::partitioner
