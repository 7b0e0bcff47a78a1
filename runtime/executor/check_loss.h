#pragma once
// A loss that is not finite ends the run: no later step could repair the weights.

#include "runtime/executor/stage_state.h"
#include "runtime/program.h"

namespace graphpipe::runtime {

/// Throws RunError (kCheckFailed) where the loss of an item, whose forward has just run, is an infinity or NaN. The
/// message names step, action and micro-batch, and the first of these that is not finite: a weight of the stage, what
/// the stage has received, its data. `slot` holds the item's tensors; the forward may have dropped some.
void check_loss(double loss, const PlanTable& plan, const StageState& state, const std::vector<at::Tensor>& slot,
                const wire::ActionRow& row, int64_t step, const Device& device);

}  // namespace graphpipe::runtime
