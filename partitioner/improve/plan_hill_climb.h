#pragma once
// Improves a plan on the true graph, move by move, whatever planner it came from (docs/planners.md, section 9):
// nodes over a boundary, or into the least busy stage of another branch; two stages into one; one stage into two; a
// replica more or less; another micro-batch size; recomputation on or off; a small stage onto the device of another, so
// that its own device is free; the devices of two stages exchanged. A move stays if the plan is sound, fits and its
// step is shorter: by the request's `evaluate`, or by cost::iteration_time where it has none.
//
// Example: stages of 5, 3 and 2 s in a chain; the last node of the first takes 1 s. Moved over the boundary it makes
// stages of 4, 4 and 2 s and a shorter step, so the move stays. The search ends at a local optimum, where no single
// move makes the step shorter.

#include "partitioner/candidates.h"

namespace graphpipe::partitioner {

/// Needs: a plan that fits. `evaluations`: plans that may be tried. Deterministic; ends early when the deadline passes.
ir::Assignment hill_climb(const PlanRequest& request, ir::Assignment start, int64_t evaluations, Deadline& deadline);

}  // namespace graphpipe::partitioner
