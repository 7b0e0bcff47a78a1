#pragma once
// Assignments for policies that are defined on one shape of stages only: chunks of a chain on each device, both ends of
// a chain on each device, or one stage everywhere. Equal runs of the model are laid onto the devices in that shape.

#include "driver/cli/options.h"
#include "partitioner/planner.h"
#include "scheduler/policies/policies.h"

namespace graphpipe::driver {

/// Whether the flags leave the cut to us and the policy asks for a shape that the planners do not make.
bool wants_shape(const PlanOptions& options, const scheduler::Policy& policy);

/// Stages of a shape on `devices` devices: as many as --stages says (0: two for each device where the shape has
/// chunks). Errors: kUsage where the shape does not have that many.
Result<int> stages_of_shape(scheduler::StageShape shape, int64_t stages, size_t devices);

/// Puts a chain of stages onto the devices of the cluster in the policy's shape.
ir::Assignment place(ir::Assignment chain, scheduler::StageShape shape, size_t devices);

/// Cuts the model into equal runs and places them; `request` says micro-batch, limits and how an assignment is
/// evaluated. Errors: kUsage for a number of stages that the shape does not have; those of the planner.
Result<partitioner::PlanAnswer> plan_shape(const partitioner::PlanRequest& request, const PlanOptions& options,
                                           scheduler::StageShape shape);

}  // namespace graphpipe::driver
