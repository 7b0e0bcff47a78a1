#pragma once
// Starts the programs of a compiled folder on this host, one process per device, and waits for them.

#include <string>

#include "ir/plan.h"
#include "support/result.h"
#include "wire/run_options.h"

namespace graphpipe::driver {

/// What a training run printed.
struct RunOutcome {
  int exit_code = 0;
  /// Rank 0's report: one JSON object where `json` was asked for, else lines.
  std::string report;
  /// What ended its programs, each problem once, those that lost a peer last; nobody has printed them.
  Diagnostics problems = {};
};

/// The options as the programs take them: absolute paths, the plan's seed where none is given.
wire::RunOptions for_programs(const wire::RunOptions& options, const ir::Plan& plan, bool json);

/// Runs `device_count` device programs, on CPUs as forks of one process (run_forks in process.h), with connections
/// between rank 0 and the others that no other process can reach and a secret of this run alone. Their warnings go to
/// stderr; rank 0's report is collected and, where `echo` is set, printed as it comes. Where the options ask for a
/// parameter server, its process is one more. When one fails the others have two seconds, or one where it was killed,
/// to end by themselves; the exit code is that of the first that failed for a reason of its own. Errors: kEnvironment
/// where a program is missing or no connection can be made. A program that fails is an outcome.
Result<RunOutcome> launch_devices(const std::string& folder, int device_count, const wire::RunOptions& options,
                                  bool echo);

/// Runs `ranks` processes of the folder's profiling program.
Result<RunOutcome> launch_profile(const std::string& folder, int ranks, const wire::RunOptions& options);

/// Runs `ranks` processes of the installed runtime's program of this name, as above, with the folder of `options` or
/// none.
Result<RunOutcome> launch_program(const std::string& name, int ranks, const wire::RunOptions& options);

/// Runs `ranks` processes of the installed runtime's graphpipe-pace, which read the plan of a paced run in `folder`.
Result<RunOutcome> launch_paced(const std::string& folder, int ranks, const wire::RunOptions& options);

/// Runs the serial interpreter of the same folder.
Result<RunOutcome> launch_serial(const std::string& folder, const wire::RunOptions& options);

}  // namespace graphpipe::driver
