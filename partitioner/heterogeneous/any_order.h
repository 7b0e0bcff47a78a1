#pragma once
// Searches hand out devices in the order of their ids, which matters where devices differ in speed or memory. Here a
// planner is asked with several orders of the devices, and with the fastest kinds of device alone.
//
// Example: fast devices 0 and 1, slow devices 2 and 3. On one link the orders are 0 1 2 3, 3 2 1 0 and 0 3 1 2, then
// come 0 1 alone and 2 3 alone. On two hosts of two devices 0 3 1 2 is left out: it would put 0 and 3 on one host.

#include <vector>

#include "partitioner/planner.h"

namespace graphpipe::partitioner {

/// Asks the planner with the devices in a few orders that depend on what they are, not on their numbers: the fastest
/// first, last, and in turn with the slowest, as far as the links between them stay the same, and, where it may leave
/// devices idle, by ask_on_kinds.
/// The best plans of all, on the devices as the request numbers them. The planner `auto` is asked once, and its plans
/// are joined by those of graphpipe and sequential in the other orders. As ask() where devices are alike or a plan is
/// given.
Result<PlanAnswer> ask_in_any_order(const PlannerEntry& planner, const PlanRequest& request);

struct AnswersOfKinds {
  std::vector<PlanAnswer> answers;
  /// False where a limit ended one of the searches.
  bool complete = true;
};

/// Asks the planner with the devices of each kind (PlanGraph::kind_of_device) alone, and with the fastest few kinds,
/// where the links between them can be kept and the plan may be shorter than PlanRequest::known_step. Plans on the
/// devices as the request numbers them; none where all are of one kind.
AnswersOfKinds ask_on_kinds(const PlannerEntry& planner, const PlanRequest& request);

/// Asks the planner with the fastest `count` devices alone, whatever the links between them: one that puts a replica of
/// one stage on every device finds the same for all links. Plans on the devices as the request numbers them.
Result<PlanAnswer> ask_on_fastest(const PlannerEntry& planner, const PlanRequest& request, size_t count);

}  // namespace graphpipe::partitioner
