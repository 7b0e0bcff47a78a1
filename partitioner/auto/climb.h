#pragma once
// The local search of the planner `auto`, over parts of stages: what lies inside a stage moves together, so that each
// plan that is tried costs little.
//
// Example: a chain of 50 equal nodes in two stages of 25. Inside the stages neighbours are joined to sets of four, as a
// set may have an eighth of its stage's work and weights; the two nodes at the boundary stay alone. The search
// (improve/plan_hill_climb.h) tries plans of these parts.

#include "partitioner/planner.h"
#include "support/deadline.h"

namespace graphpipe::partitioner {

/// Whether the request fixes the micro-batch or the number of stages: there is less to search then, so much less is
/// tried.
bool is_narrow(const PlanRequest& request);

/// A local optimum near a plan that fits, by the request's `evaluate`; without one by cost::iteration_time.
ir::Assignment climb_from(const PlanRequest& request, const ir::Assignment& start, Deadline& deadline);

}  // namespace graphpipe::partitioner
