#pragma once
// A non-finite loss ends the run or skips the step: no later step could repair the weights.

#include <optional>
#include <string>
#include <string_view>

#include "runtime/executor/stage_state.h"
#include "runtime/program.h"

namespace graphpipe::runtime {

/// Describes the problem if the loss of an item, whose forward has just run, is infinite or NaN. The text names the
/// step, action and micro-batch, and the first non-finite tensor among these, in this order: a weight of the stage,
/// what the stage has received, its data, a value that it has computed and keeps. `slot` holds the item's tensors; the
/// forward may have dropped some.
std::optional<std::string> loss_problem(double loss, const PlanTable& plan, const StageState& state,
                                        const std::vector<at::Tensor>& slot, const wire::ActionRow& row, int64_t step,
                                        const Device& device);

/// Whether a loss that is not finite may be so because of its scale: that makes it infinite, and not NaN.
bool may_be_of_scale(double loss);

/// Whether the error that another rank has ended with is about such a loss.
bool tells_of_loss(std::string_view words);

/// The first non-finite value of the item that is still held, in the order in which the stage computes them: "the value
/// of Log 'node_3' element [0,2] is infinite".
std::optional<std::string> not_finite_value(const StageEntry& entry, const std::vector<at::Tensor>& slot,
                                            const Device& device);

/// Throws RunError (kCheckFailed) with what loss_problem() has found.
[[noreturn]] void fail_of_loss(std::string problem);

}  // namespace graphpipe::runtime
