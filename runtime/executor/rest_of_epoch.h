#pragma once
// Steps that have fewer samples than the batch: the last one of an epoch, where the rest is trained alone
// (wire/sample_order.h). The program is the plan's; every action keeps those of its samples that the step has.

#include <vector>

#include "runtime/program.h"

namespace graphpipe::runtime {

/// The actions of a step that has the first `samples` samples of the batch. An item or a message without any of them is
/// left out; reductions and steps stay, in which a replica without samples takes part with zeros. What the step
/// computes is what a plan of that batch with the same micro-batches computes. Throws RunError (kUsage) where the
/// schedule applies gradients of parts of the batch within a step.
std::vector<wire::ActionRow> actions_of_rest(const DeviceProgram& program, int64_t samples);

}  // namespace graphpipe::runtime
