#pragma once
// Programs of fewer samples than the plan's: of the last step of an epoch, where the rest is trained alone
// (wire/sample_order.h), and, where an asynchronous schedule is of several steps, of fewer of these, because something
// between them asks for a drained pipeline. Every action keeps those of its samples that are there.

#include <vector>

#include "runtime/program.h"

namespace graphpipe::runtime {

/// The actions for the first `samples` samples of the program. An item or a message without any of them is left out, an
/// update too; one that has some of them stays whole, and a replica without samples takes part in it with zeros. What
/// they compute is what a plan of these samples with the same micro-batches computes. Throws RunError (kUsage) where an
/// update of a part of the step loses samples.
std::vector<wire::ActionRow> actions_of_first(const DeviceProgram& program, int64_t samples);

}  // namespace graphpipe::runtime
