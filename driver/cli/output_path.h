#pragma once
// The file that -o names, before anything is computed for it.

#include <span>
#include <string>

#include "driver/cli/options.h"
#include "support/result.h"

namespace graphpipe::driver {

/// Refuses a path that cannot be written (kEnvironment), and one that leads to a file which the command reads (kUsage):
/// those that its flags name, `also_read`, and what makes a compiled folder runnable that it reads. A plan of --plan
/// may be written again.
Status check_output(const Options& options, std::span<const std::string> also_read = {});

}  // namespace graphpipe::driver
