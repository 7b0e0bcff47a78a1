#include "driver/launch/failed_run.h"

#include <algorithm>
#include <utility>

#include "driver/launch/process.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
namespace {

struct Failure {
  Code code;
  const char* hint;
};

Failure failure_of(int exit_code) {
  switch (exit_code) {
    case wire::kExitCheckFailed:
      return {Code::kCheckFailed, "look into the step that is named beside this: a smaller --lr, or other data"};
    case wire::kExitUsage:
      return {Code::kUsage,
              "change the flag that is named beside this; if the program does not know one that you did not "
              "give, it is of another version: run `graphpipe build` again"};
    case wire::kExitInputRefused:
      return {Code::kBadData, "correct what is named beside this: a file, or the samples that a program gave"};
    case wire::kExitEnvironment:
      return {Code::kEnvironment,
              "provide what is said to be missing beside this, such as space on the disk, and start it again"};
    case wire::kExitPartial:
      return {Code::kInterrupted, "start it again: it was asked to end"};
    case wire::kExitInternal:
      return {Code::kInternal, "report what is said beside this: it is a defect of GraphPipe"};
    default:
      return {Code::kPeerFailed,
              "start it again; where the same device fails, look at what is named beside this: the action and "
              "micro-batch, or the signal (9 may be for want of memory, 15 is from who ended it)"};
  }
}

}  // namespace

Diagnostic was_interrupted(std::string_view what, const char* hint) {
  return {.code = Code::kInterrupted, .message = text(what, " was interrupted"), .hint = hint};
}

Diagnostics with_problems(Diagnostic end, const RunOutcome& outcome) {
  const int code = exit_code_of(end.code);
  Diagnostics problems = outcome.problems;
  problems.push_back(std::move(end));
  std::stable_partition(problems.begin(), problems.end(),
                        [&](const Diagnostic& problem) { return exit_code_of(problem.code) == code; });
  return problems;
}

Diagnostics failed_run(const RunOutcome& outcome, std::string_view what, const std::string& place) {
  const Failure failure = interrupted() ? Failure{Code::kInterrupted, "start it again"} : failure_of(outcome.exit_code);
  return with_problems({.code = failure.code,
                        .origin = ModelText(place),
                        .message = text(what, " ended with exit code ", outcome.exit_code),
                        .hint = failure.hint},
                       outcome);
}

}  // namespace graphpipe::driver
