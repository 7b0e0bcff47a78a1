#pragma once
// Programs of fewer samples than the plan's: for the last step of an epoch, if the remainder is trained separately
// (wire/sample_order.h), and, if an asynchronous schedule covers several steps, for fewer of them, because something in
// between needs a drained pipeline. Every action keeps those of its samples that exist.

#include <vector>

#include "runtime/program.h"

namespace graphpipe::runtime {

/// The actions for the first `samples` samples of the program. An item, message or update without any of them is
/// dropped; an update that has some of them stays whole, and a replica without samples takes part in it with zeros. The
/// result is the same as with a plan of these samples and the same micro-batches. Throws RunError (kUsage) if an update
/// that covers part of the step loses samples.
std::vector<wire::ActionRow> actions_of_first(const DeviceProgram& program, int64_t samples);

}  // namespace graphpipe::runtime
