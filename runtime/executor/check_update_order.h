#pragma once
// Whether a device's program leaves room for what a training step asks of all its gradients at once.

#include "runtime/executor/resolve.h"
#include "runtime/executor/stage_state.h"

namespace graphpipe::runtime {

/// What looks at the gradients of the whole step before weights change, besides the clipping of `settings`.
struct StepChecks {
  bool guard = false;
  bool loss_scale = false;
};

/// Clipping, the guard and the loss scale need every gradient of the training step, so no compute of this device may
/// come after its first update then; accumulation over steps needs a schedule with one update a step. Throws RunError
/// (kBadSchedule) with the first action that breaks this.
void check_update_order(const PlanTable& plan, const ResolvedProgram& program, const UpdateSettings& settings,
                        StepChecks checks);

}  // namespace graphpipe::runtime
