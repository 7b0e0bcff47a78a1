#include "runtime/pace/pacer.h"

#include <chrono>
#include <utility>

#include "runtime/executor/update_weights.h"

namespace graphpipe::runtime {
namespace {

using wire::ActionOp;

}  // namespace

void Pacer::compute(const ResolvedAction& action, StageState& state, std::vector<at::Tensor>& slot) {
  const ActionOp op = action.row.op;
  const int64_t samples = action.row.range.size();
  const bool forward = op == ActionOp::kForward || op == ActionOp::kRecompute;
  const bool recomputes = program_.table().stages[static_cast<size_t>(action.row.stage)].recompute;
  for (const BoundaryRow& row : state.entry->boundaries) {
    const auto value = static_cast<size_t>(row.slot);
    if (forward && !row.is_input) slot[value] = memory_.tensor(row.tensor, samples);
    // What a stage keeps of its inputs is not modelled; a recomputation requests them again.
    if (forward && row.is_input && !recomputes) slot[value].reset();
    if (op != ActionOp::kBackward && op != ActionOp::kInputGradient) continue;
    for (int32_t part = 0; part < row.gradient_count; ++part)
      slot[static_cast<size_t>(row.gradient_slot + part)] =
          row.is_input ? memory_.tensor(row.tensor, samples) : at::Tensor();
  }
  if (wire::makes_weight_gradients(op)) complete_gradients(action, state);
}

void Pacer::complete_gradients(const ResolvedAction& action, StageState& state) {
  std::vector<at::Tensor>& gradients = gradients_of(state, action.update);
  for (const size_t index : state.trainable)
    if (!gradients[index].defined()) gradients[index] = memory_.tensor(state.entry->params[index].tensor, 1);
}

void Pacer::step(const ResolvedAction& action, StageState& state) {
  const std::vector<size_t> none, kept = std::exchange(state.trainable, none);
  step_weights(state, action.update, {}, action.keeps_version);
  state.trainable = kept;
}

void Pacer::sleep(int64_t nanoseconds, const std::function<void()>& meanwhile) {
  if (nanoseconds <= 0) return;
  const int64_t end = pace_now() + nanoseconds;
  channels_.pause_until(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(end)), meanwhile);
  late_.nanoseconds += pace_now() - end;
  ++late_.pauses;
}

}  // namespace graphpipe::runtime
