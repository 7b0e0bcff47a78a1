#include "runtime/training/overflow.h"

#include <algorithm>
#include <cmath>

#include "runtime/collectives/gather.h"
#include "runtime/error.h"
#include "runtime/kernels/table_rows.h"
#include "runtime/training/finite_gradients.h"

namespace graphpipe::runtime {
namespace {

bool any_rank(bool own, Gather* gather, int32_t rank) {
  if (gather == nullptr) return own;
  std::vector<std::byte> verdict{std::byte(own ? 1 : 0)};
  const std::vector<std::vector<std::byte>> all = gather->collect(verdict);
  if (rank == 0)
    verdict.front() = std::byte(std::ranges::any_of(all, [](const auto& of_rank) {
      if (of_rank.size() != 1)
        fail(Code::kPeerFailed, "a rank sent a malformed finding", "run all ranks from one folder");
      return of_rank.front() != std::byte{0};
    }));
  verdict = gather->broadcast(verdict);
  return verdict.size() == 1 && verdict.front() != std::byte{0};
}

}  // namespace

std::optional<LossScale> first_loss_scale(const PlanTable& plan, const wire::OptimizerOptions& options) {
  if (!plan.scales_loss || options.loss_scale == 0) return std::nullopt;
  return LossScale(options.loss_scale, options.loss_scale_growth);
}

std::optional<Diagnostic> overflow_problem(const wire::RunResult& result) {
  if (result.loss_scales.empty() || result.losses.empty() || std::isfinite(result.losses.back())) return std::nullopt;
  return Diagnostic{
      .code = Code::kCheckFailed,
      .origin = {},
      .message = text("the loss of the last step is infinite, at loss scale ", result.loss_scales.back(), ": of ",
                      result.losses.size(), " steps ", result.skipped_steps.size(), " made no update"),
      .hint =
          "compile with --precision bf16, which has the range of float32, lower the learning rate, or look at the "
          "data"};
}

void OverflowWatch::begin(const std::vector<StageState*>& states, const KeptStatistics& statistics) {
  states_ = states;
  statistics_ = &statistics;
  loss_overflows_ = false;
}

void OverflowWatch::check(LossScale& scale, bool is_update, Gather* gather, int32_t rank, StepOutcome& outcome) const {
  const bool own = loss_overflows_ || std::ranges::any_of(states_, [](StageState* state) {
                     return not_finite_gradient(*state).has_value();
                   });
  outcome.overflow = any_rank(own, gather, rank);
  if (outcome.overflow) statistics_->put_back();
  const double before = scale.scale();
  if (!scale.note(outcome.overflow, is_update)) return;
  for (StageState* state : states_) {
    for (at::Tensor& sum : state->gradient_sums) sum.reset();
    for (const size_t index : state->trainable) stored_elements(gradients_of(*state, 0)[index]).zero_();
  }
  outcome.skipped = text("gradients overflow at loss scale ", before, "; the next steps take ", scale.scale());
}

}  // namespace graphpipe::runtime
