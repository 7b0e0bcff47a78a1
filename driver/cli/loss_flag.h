#pragma once
// The --loss flag: KIND:OUTPUT[,LABEL][,ignore=N][,axis=N][,sum].

#include <string>

#include "passes/pass.h"
#include "support/result.h"

namespace graphpipe::driver {

/// Errors (kUsage): an unknown kind, a missing or superfluous name, a number that is none. An empty flag is no loss.
Result<passes::LossSpec> parse_loss(const std::string& flag);

}  // namespace graphpipe::driver
