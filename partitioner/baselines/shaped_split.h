#pragma once
// Plans for policies that are defined on one shape of stages only (ir/stage_shape.h): chunks of a chain on each device,
// both ends of a chain on each device, or one stage everywhere. Equal runs of the model are laid onto the devices in
// that shape.

#include "ir/stage_shape.h"
#include "partitioner/planner.h"

namespace graphpipe::partitioner {

/// Cuts the model into equal runs, as many as `request.stages` says or else as are usual in the shape, and places them.
/// Errors: kUsage for a number of stages that the shape does not have; kBadPlan for nodes that work on several samples
/// where replicas divide these; those of the planner equal-split.
Result<PlanAnswer> plan_in_shape(const PlanRequest& request, ir::StageShape shape);

}  // namespace graphpipe::partitioner
