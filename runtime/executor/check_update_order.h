#pragma once
// Whether the order of a device's program allows checks that need all gradients of the training step.

#include "runtime/executor/resolve.h"
#include "runtime/executor/stage_state.h"

namespace graphpipe::runtime {

/// What examines the gradients of the whole step before weights change, besides the clipping of `settings`.
struct StepChecks {
  bool guard = false;
  bool loss_scale = false;
};

/// Clipping, the guard and the loss scale need every gradient of the training step, so no compute of this device may
/// come after its first update; accumulation over steps needs a schedule with one update per step. Throws RunError
/// (kBadSchedule) with the first action that violates this.
void check_update_order(const PlanTable& plan, const ResolvedProgram& program, const UpdateSettings& settings,
                        StepChecks checks);

}  // namespace graphpipe::runtime
