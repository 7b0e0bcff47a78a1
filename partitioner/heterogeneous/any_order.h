#pragma once
// Devices that differ in speed or memory. Their numbers mean nothing but how far they are from each other, while
// searches hand devices out by their numbers; and the slow ones may be best left out.

#include <vector>

#include "partitioner/planner.h"

namespace graphpipe::partitioner {

/// Asks the planner with the devices in a few orders that depend on what they are, not on their numbers: the fastest
/// first, last, and in turn with the slowest, as far as the links between them stay the same, and, where it may leave
/// devices idle, by ask_on_classes.
/// The best plans of all, on the devices as the request numbers them. The planner `auto` is asked once, and its plans
/// are joined by those of graphpipe and sequential in the other orders. As ask() where devices are alike or a plan is
/// given.
Result<PlanAnswer> ask_in_any_order(const PlannerEntry& planner, const PlanRequest& request);

/// Asks the planner with the devices of each class (device_order.h) alone, and with the fastest few classes, where the
/// links between them can be kept. Plans on the devices as the request numbers them; nothing where devices are alike.
std::vector<PlanAnswer> ask_on_classes(const PlannerEntry& planner, const PlanRequest& request);

}  // namespace graphpipe::partitioner
