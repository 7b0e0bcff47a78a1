#pragma once
// What a verb reports of a run whose programs did not end well.

#include <string>
#include <string_view>

#include "driver/launch/launch.h"
#include "support/diagnostic.h"

namespace graphpipe::driver {

/// That Ctrl-C or a request to end has ended `what` ("the build"), which has no result yet.
Diagnostic was_interrupted(std::string_view what, const char* hint = "start the same command again");

/// How a run ended, among the problems that its programs named: behind those that lead to the same exit code.
Diagnostics with_problems(Diagnostic end, const RunOutcome& outcome);

/// Why there is no result of `what` ("the paced run"), which was to run the programs of `place`: the problems
/// that they named, and how they ended. The first leads to the exit code of their end, or is kInterrupted where this
/// process was interrupted. A code that no program of ours ends with stands for a device that died: kPeerFailed. Needs:
/// an outcome whose exit code is not 0.
Diagnostics failed_run(const RunOutcome& outcome, std::string_view what, const std::string& place);

}  // namespace graphpipe::driver
