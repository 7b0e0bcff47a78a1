#pragma once
// The result of a run as it grows, and its output: one line per step immediately, the rest at the end.

#include "runtime/training/step_observer.h"
#include "support/terminal_line.h"
#include "wire/result_lines.h"
#include "wire/run_options.h"

namespace graphpipe::runtime {

/// On rank 0 adds every step's seconds, loss and gradient norm to the result, and prints a line with them: on stdout,
/// or, if stdout takes one JSON object, on stderr if the options ask for progress. On a terminal each line replaces the
/// previous one. Both arguments must outlive it.
class ProgressLines : public StepObserver {
 public:
  ProgressLines(const wire::RunOptions& options, wire::RunResult& result, bool is_rank_zero = true);

  Request after_step(const StepFacts& facts) override;
  /// Prints a line of its own among those of the steps.
  void say(std::string_view line) { line_.say(line); }

 private:
  const wire::RunOptions& options_;
  wire::RunResult& result_;
  bool is_rank_zero_;
  TerminalLine line_;
};

/// Prints the rest of the result on stdout. Throws RunError (kEnvironment) if that fails.
void print_result(const wire::RunOptions& options, const wire::RunResult& result);

}  // namespace graphpipe::runtime
