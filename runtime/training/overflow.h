#pragma once
// Whether a step's gradients overflow at the loss scale that it ran with: all ranks find the same and leave out the
// same updates.

#include <optional>
#include <string>
#include <vector>

#include "runtime/executor/stage_state.h"
#include "runtime/optimizers/loss_scale.h"

namespace graphpipe::runtime {

class Gather;

/// The scale that a run begins with; none where the plan computes no gradients in float16, or the run scales nothing.
std::optional<LossScale> first_loss_scale(const PlanTable& plan, const wire::OptimizerOptions& options);

/// Once all gradients of the step are reduced and before its first update; on all ranks at the same place. Looks at the
/// gradients of these states, hears what all have found and adapts the scale. Returns why the step makes no update,
/// of which the gradients are then zeros; empty where it makes one. `gather` null: there is no other rank.
std::string judge_overflow(LossScale& scale, const std::vector<StageState*>& states, bool is_update, Gather* gather,
                           int32_t rank);

}  // namespace graphpipe::runtime
