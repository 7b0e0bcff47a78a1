#pragma once
// graphpipe run --pace: a plan's schedule on real processes, with pauses instead of compute.

#include "driver/cli/options.h"

namespace graphpipe::driver {

/// Returns the exit code.
int run_paced(const Options& options);

}  // namespace graphpipe::driver
