#pragma once
// The flags of a verb as a TOML file: keys are their names without the dashes. Of `run`, `group` is a list of tables.
//
//   lr = 0.05
//   betas = [0.9, 0.95]
//   lr-schedule = "cosine:1000,0.1"
//   nesterov = true
//
//   [[group]]
//   pattern = "*.bias"
//   weight-decay = 0

#include <set>
#include <string>
#include <vector>

#include "driver/cli/options.h"
#include "support/result.h"

namespace graphpipe::driver {

/// A flag of a verb, with its dashes.
struct KnownFlag {
  std::string name;
  bool is_switch = false;
};

/// The file's flags as words of the command line, `--name=value`, those that are `typed` left out: true for a switch, a
/// text, a number, or a list of them where the flag may be repeated. What the values mean the command line says.
/// Errors: as read_config.
Result<std::vector<std::string>> words_of_config(const std::string& path, const std::vector<KnownFlag>& known,
                                                 const std::set<std::string>& typed);

/// Reads the file's flags into options.run, and their names into options.given: what a flag cannot mean is said as of
/// one that was typed. Those that the command line names stay as they are, and those that only `run` takes are left out
/// for `verify`. Errors: kUnreadableFile; kMalformedFile with the line, all of them at once.
Status read_config(const std::string& path, wire::FlagUser user, Options& options);

/// What differs from the defaults, so that read_config gives the same options.
std::string config_text(const wire::RunOptions& options);

}  // namespace graphpipe::driver
