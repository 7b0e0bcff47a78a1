#pragma once
// The signals by which a user asks a training to keep what it has: SIGUSR1 for a checkpoint, SIGINT and SIGTERM for one
// and the end.

#include "runtime/training/step_observer.h"

namespace graphpipe::runtime {

/// From here on the signals are remembered. A second SIGINT or SIGTERM ends the process at once, unless it comes
/// so soon that it is a copy of the first (SignalEcho).
void catch_stop_signals();

/// What was asked for since the last call.
Request take_signals();

}  // namespace graphpipe::runtime
