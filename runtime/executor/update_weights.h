#pragma once
// The end of an update of a stage's replica, once its gradients are reduced: gradients of several steps are averaged,
// values and norms are clipped, the optimizer makes the next version, and the moving average is updated. The executor
// and the serial interpreter share it (docs/semantics.md, section 3).

#include "runtime/executor/stage_state.h"
#include "runtime/io/data.h"

namespace graphpipe::runtime {

/// Factors on the gradients of an update.
struct UpdateFactors {
  /// Divides by the number of the update's own samples (update_factor in runtime/io/data.h).
  double samples = 1;
  /// For clipping by the global norm, after averaging and clipping by value.
  double norm = 1;
};

/// The shares of a step from 0. `accumulate` as in wire/optimizers.h.
StepShares step_shares(const Data& data, int64_t step, int64_t accumulate);

/// Turns the gradients into what the update takes, except for the factor of the norm. In place, so that they are saved
/// as they were used; once per update of a step, later calls change nothing. If the step makes no update
/// (--accumulate), they are added to those of the earlier steps. Those of 16 bits may be left as they are: step_weights
/// makes them float32 then, one after the other.
void prepare_gradients(StageState& state, int64_t update, double samples_factor);
/// The state's part of the squared global norm of the step's only update: parameters whose group no earlier stage has
/// counted. Prepares the gradients.
double squared_gradient_norm(const PlanTable& plan, StageState& state);
/// Whether the step that the state is in makes an update (--accumulate).
bool makes_update(const StageState& state);
/// Makes the next version: one optimizer step, or none if the step makes no update. `keep` preserves the previous
/// version; otherwise its memory is reused. Drops the gradients of earlier updates. Of a state that owns parts of the
/// parameters these alone are new; once the other replicas' have come, follow_weights() is due.
void step_weights(StageState& state, int64_t update, UpdateFactors factors, bool keep);
/// Moves the moving averages, if there are any, toward the new weights.
void follow_weights(StageState& state);

}  // namespace graphpipe::runtime
