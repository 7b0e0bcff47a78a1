#pragma once
// The end of an update of a stage's replica, once its gradients are reduced: gradients of several steps are averaged,
// values and norms are clipped, the optimizer makes the next version, and the moving average follows. The executor and
// the serial interpreter share it (docs/semantics.md, section 3).

#include "runtime/executor/stage_state.h"

namespace graphpipe::runtime {

/// What the gradients of an update are multiplied with.
struct UpdateFactors {
  /// Gives them the divisor of the update's own samples (update_factor in runtime/io/data.h).
  double samples = 1;
  /// Of clipping by the global norm, once they are averaged and their values are clipped.
  double norm = 1;
};

/// Makes the gradients what the update takes, but for the factor of the norm. In place, so that they are saved as they
/// were used; once per update of a step, later calls change nothing. Where the step makes no update (--accumulate) they
/// are added to those of the steps before.
void prepare_gradients(StageState& state, int64_t update, double samples_factor);
/// The state's part of the squared global norm of the step's only update: parameters whose group is not already counted
/// by an earlier stage. Prepares the gradients.
double squared_gradient_norm(const PlanTable& plan, StageState& state);
/// Makes the next version: one optimizer step, or none where the step makes no update. `keep` leaves the version before
/// it as it is; else its memory is taken over. Drops the gradients of earlier updates.
void step_weights(StageState& state, int64_t update, UpdateFactors factors, bool keep);

}  // namespace graphpipe::runtime
