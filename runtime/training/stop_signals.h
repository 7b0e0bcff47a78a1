#pragma once
// Signals that control a training: SIGUSR1 requests a checkpoint, SIGINT and SIGTERM request a checkpoint and the end
// of the run.

#include "runtime/training/step_observer.h"

namespace graphpipe::runtime {

/// From here on the signals are recorded. A second SIGINT or SIGTERM ends the process at once, unless it arrives so
/// soon that it is a duplicate of the first (SignalEcho).
void catch_stop_signals();

/// What was requested since the last call.
Request take_signals();

}  // namespace graphpipe::runtime
