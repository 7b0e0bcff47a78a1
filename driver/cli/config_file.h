#pragma once
// The flags of `run` as a TOML file: keys are their names without the dashes, `group` is a list of tables.
//
//   lr = 0.05
//   betas = [0.9, 0.95]
//   lr-schedule = "cosine:1000,0.1"
//   nesterov = true
//
//   [[group]]
//   pattern = "*.bias"
//   weight-decay = 0

#include <string>

#include "driver/cli/options.h"
#include "support/result.h"

namespace graphpipe::driver {

/// Reads the file's flags into options.run, and their names into options.given: what a flag cannot mean is said as of
/// one that was typed. Those that the command line names stay as they are, and those that only `run` takes are left out
/// for `verify`. Errors: kUnreadableFile; kMalformedFile with the line, all of them at once.
Status read_config(const std::string& path, wire::FlagUser user, Options& options);

/// What differs from the defaults, so that read_config gives the same options.
std::string config_text(const wire::RunOptions& options);

}  // namespace graphpipe::driver
