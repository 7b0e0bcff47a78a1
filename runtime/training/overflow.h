#pragma once
// Whether a step's gradients overflow at the loss scale that it ran with: all ranks reach the same result and skip the
// same updates.

#include <optional>
#include <string>
#include <vector>

#include "runtime/executor/stage_state.h"
#include "runtime/loss.h"
#include "runtime/optimizers/loss_scale.h"
#include "runtime/training/kept_statistics.h"
#include "support/result.h"
#include "wire/result_lines.h"

namespace graphpipe::runtime {

class Gather;

/// The scale that a run begins with; none if the plan computes no gradients in float16, or the run does not scale.
std::optional<LossScale> first_loss_scale(const PlanTable& plan, const wire::OptimizerOptions& options);

/// The problem of a run with a loss scale whose last step has a loss that is not finite: its weights are those of the
/// steps before, and it has not become what was asked for.
std::optional<Diagnostic> overflow_problem(const wire::RunResult& result);

/// One step's gradients and losses.
class OverflowWatch {
 public:
  /// Begins a step with these states, whose running statistics have been kept; both must outlive the step.
  void begin(const std::vector<StageState*>& states, const KeptStatistics& statistics);
  /// A loss of this rank is not finite, which the gradients need not show.
  void note_loss() { loss_overflows_ = true; }
  /// Call after all gradients of the step are reduced and before its first update, at the same place on all ranks.
  /// Checks the gradients, combines the findings of all ranks and adapts the scale; running statistics of a step that
  /// overflows are restored. Records in the outcome whether it did and why the step makes no update; the update's
  /// gradients are then zeros. `gather` null: there is no other rank.
  void check(LossScale& scale, bool is_update, Gather* gather, int32_t rank, StepOutcome& outcome) const;

 private:
  std::vector<StageState*> states_;
  const KeptStatistics* statistics_ = nullptr;
  bool loss_overflows_ = false;
};

}  // namespace graphpipe::runtime
