#include "runtime/training/progress_lines.h"

#include <unistd.h>

#include <cstdio>

#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

Diagnostic skipped_note(const StepFacts& facts) {
  return {.code = Code::kCheckFailed,
          .severity = Severity::kWarning,
          .message = text("step ", facts.step + 1, " was skipped: ", facts.skipped),
          .hint = "the weights are as before it; lower the learning rate or look at the data of this step if more are"};
}

}  // namespace

ProgressLines::ProgressLines(const wire::RunOptions& options, wire::RunResult& result, bool is_rank_zero)
    : options_(options),
      result_(result),
      is_rank_zero_(is_rank_zero),
      // Printed immediately, also into a pipe or a file, whose reader does not hold up the training.
      line_(options.output.json ? STDERR_FILENO : STDOUT_FILENO) {}

Request ProgressLines::after_step(const StepFacts& facts) {
  if (!is_rank_zero_) return {};
  result_.step_seconds.push_back(facts.seconds);
  result_.step_samples = facts.samples;
  if (facts.gradient_norm >= 0) result_.gradient_norms.push_back(facts.gradient_norm);
  if (facts.loss) result_.losses.push_back(*facts.loss);
  if (facts.loss_scale > 0) result_.loss_scales.push_back(facts.loss_scale);
  if (!facts.skipped.empty()) result_.skipped_steps.push_back(facts.step + 1);
  if (options_.output.json && !options_.output.progress) return {};
  std::fflush(stdout);
  if (!facts.skipped.empty()) {
    line_.close();
    std::fprintf(stderr, "%s\n", to_line(skipped_note(facts)).c_str());
  }
  line_.show(wire::step_line(result_, options_.data.steps));
  return {};
}

void print_result(const wire::RunOptions& options, const wire::RunResult& result) {
  std::fputs(
      (options.output.json ? wire::to_json(result) : wire::peak_lines(result) + wire::staleness_line(result)).c_str(),
      stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    fail(Code::kEnvironment, "the result cannot be written to standard output", "check where it goes, and its space");
}

}  // namespace graphpipe::runtime
