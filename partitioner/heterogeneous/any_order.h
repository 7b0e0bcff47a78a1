#pragma once
// Devices that differ in speed or memory, where all are equally far from each other: their numbers mean nothing, but
// searches hand devices out by their numbers.

#include "partitioner/planner.h"

namespace graphpipe::partitioner {

/// Asks the planner with the devices in a few orders that depend on what they are, not on their numbers: the fastest
/// first, last, and in turn with the slowest. The best plans of all, on the devices as the request numbers them. The
/// planner `auto` is asked once, and its plans are joined by those of graphpipe and sequential in the other orders.
/// As ask() where devices are alike, links differ or a plan is given.
Result<PlanAnswer> ask_in_any_order(const PlannerEntry& planner, const PlanRequest& request);

}  // namespace graphpipe::partitioner
