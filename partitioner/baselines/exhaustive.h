#pragma once
// Every plan of a small graph: all ways to put its groups (search_space.h) into stages without a cycle, all replica
// counts, the requested micro-batch sizes (the same in every stage, k = 1), and on up to six devices all places that
// differ in speed, memory or links. The best few hundred by cost::iteration_time are simulated. Not tried: replicas that
// take turns, several stages on a device.
//
// Example: a -> b -> c on two equal devices. One stage has one or two replicas, {a}, {b, c} and {a, b}, {c} have one
// each; {a, c} and {b} would wait for each other. So there are four plans of every size from two samples up.

#include "partitioner/planner.h"

namespace graphpipe::partitioner {

/// More groups than this are refused: there are 115,975 ways to put 10 groups into stages.
inline constexpr size_t kMaxExhaustiveGroups = 10;

/// Returns the plans that are best by objective and by `evaluate`. Errors: kLimitExceeded for a larger graph.
Result<PlanAnswer> plan_exhaustive(const PlanRequest& request);

/// The same where there are at most so many plans to price: those that might have a step below `known_step`.
/// Where there are more with all places, equal devices are tried in one order. Errors: also kLimitExceeded where there
/// are more still.
Result<PlanAnswer> plan_exhaustive_within(const PlanRequest& request, int64_t max_plans);

}  // namespace graphpipe::partitioner
