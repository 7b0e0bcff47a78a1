#pragma once
// Decisions that take more than one search by a planner. They share one time limit, that of the request.

#include <optional>
#include <string_view>

#include "ir/stage_shape.h"
#include "partitioner/planner.h"
#include "support/stopwatch.h"

namespace graphpipe::partitioner {

/// The request of a further search, for which less of the time limit is left: what the watch has not used up.
PlanRequest with_time_left(PlanRequest request, const Stopwatch& watch);

/// The best plan for batches that follow each other without draining. The closed form of a full pipeline ranks best
/// what has many micro-batches for an update, and that of a batch which drains what has few (2bw): the planner is asked
/// with both, with the second for a start only. Errors: those of the planner.
Result<PlanAnswer> plan_asynchronous(std::string_view planner, PlanRequest request, const Stopwatch& watch);

/// The best plan for a policy that needs stages of a shape: equal parts of that shape. A chain with one stage for each
/// device is a loop too, so for loops also equal parts of that number, where no number is requested, and what the other
/// planners find, which may leave devices out; replicas may leave devices out too. Errors: those of the first.
Result<PlanAnswer> plan_for_shape(const PlanRequest& request, ir::StageShape shape, const Stopwatch& watch);

/// Where the answer is plain data parallelism and the request leaves the number of stages open: the best plan of
/// several stages among its candidates; where they are all of one stage, GraphPipe's own. Else nothing.
std::optional<ir::Assignment> best_multi_stage(PlanRequest request, const Stopwatch& watch, const PlanAnswer& answer);

}  // namespace graphpipe::partitioner
