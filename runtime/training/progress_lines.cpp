#include "runtime/training/progress_lines.h"

#include <cstdio>

#include "runtime/error.h"

namespace graphpipe::runtime {

Request ProgressLines::after_step(const StepFacts& facts) {
  if (!is_rank_zero_) return {};
  result_.step_seconds.push_back(facts.seconds);
  if (facts.gradient_norm >= 0) result_.gradient_norms.push_back(facts.gradient_norm);
  if (facts.loss) result_.losses.push_back(*facts.loss);
  if (options_.output.json && !options_.output.progress) return {};
  // Each line as it happens, into a pipe or a file too.
  std::FILE* out = options_.output.json ? stderr : stdout;
  std::fputs(wire::step_line(result_, options_.data.steps).c_str(), out);
  std::fflush(out);
  return {};
}

void print_result(const wire::RunOptions& options, const wire::RunResult& result) {
  std::fputs((options.output.json ? wire::to_json(result) : wire::peak_lines(result)).c_str(), stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    fail(Code::kEnvironment, "the result cannot be written to standard output", "check where it goes, and its space");
}

}  // namespace graphpipe::runtime
