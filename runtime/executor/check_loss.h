#pragma once
// A loss that is not finite ends the run or skips the step: no later step could repair the weights.

#include <optional>
#include <string>
#include <string_view>

#include "runtime/executor/stage_state.h"
#include "runtime/program.h"

namespace graphpipe::runtime {

/// What is wrong where the loss of an item, whose forward has just run, is an infinity or NaN. The words name step,
/// action and micro-batch, and the first of these that is not finite: a weight of the stage, what the stage has
/// received, its data, a value that it has computed and keeps. `slot` holds the item's tensors; the forward may have
/// dropped some.
std::optional<std::string> loss_problem(double loss, const PlanTable& plan, const StageState& state,
                                        const std::vector<at::Tensor>& slot, const wire::ActionRow& row, int64_t step,
                                        const Device& device);

/// Whether words that another rank has ended with tell of such a loss.
bool tells_of_loss(std::string_view words);

/// The first value of the item, in the order in which the stage computes them, that is held and not finite: "the value
/// of Log 'node_3' element [0,2] is infinite".
std::optional<std::string> not_finite_value(const StageEntry& entry, const std::vector<at::Tensor>& slot,
                                            const Device& device);

/// Throws RunError (kCheckFailed) with what loss_problem() has found.
[[noreturn]] void fail_of_loss(std::string problem);

}  // namespace graphpipe::runtime
