#include "runtime/executor/update_weights.h"

#include <deque>

#include "runtime/executor/plan_channels.h"
#include "runtime/executor/resolve.h"
#include "runtime/kernels/table_rows.h"
#include "runtime/optimizers/gradient_norm.h"

namespace graphpipe::runtime {
namespace {

// If the step makes an update, the mean of the gradients since the last update replaces them, each step counting by its
// samples.
void accumulate(StageState& state, size_t index, at::Tensor& gradient) {
  at::Tensor& sum = state.gradient_sums[index];
  if (sum.defined()) sum.add_(gradient, state.shares.of_step);
  else sum = gradient.mul(state.shares.of_step);
  if (!makes_update(state)) return;
  gradient.copy_(sum.div(state.shares.of_update));
  sum.reset();
}

// A gradient of 16 bits becomes float32 when its weight is updated, one weight after another, so that a stage has one
// of them at a time. Not where it is added up or clipped before, or read later; nor on a GPU, where one launch updates
// all.
bool widens_late(const StageState& state, size_t index) {
  const at::Tensor& weight = state.weights[index];
  if (!state.optimizer.has_main_weight(weight) || !weight.is_cpu() || state.shows_used_gradients) return false;
  return state.updates == nullptr || (state.updates->options.accumulate <= 1 && state.updates->options.clip_value == 0);
}

at::Tensor float32_gradient(const at::Tensor& gradient, double factor) {
  at::Tensor wide = gradient.to(at::kFloat);
  return factor == 1 ? wide : wide.mul_(factor);
}

void step_widened(StageState& state, size_t index, const at::Tensor& gradient, UpdateFactors factors,
                  double rate_factor) {
  if (!state.owned.empty() && state.owned[index].count == 0) return;
  at::Tensor weight = owned_part(state, index, state.weights[index]);
  at::Tensor wide = float32_gradient(owned_part(state, index, gradient), factors.samples * state.gradient_factor);
  if (factors.norm != 1) wide.mul_(factors.norm);
  state.optimizer.step(index, weight, wide, rate_factor);
}

}  // namespace

bool makes_update(const StageState& state) { return state.updates == nullptr || state.updates->is_update(state.step); }

StepShares step_shares(const Data& data, int64_t step, int64_t accumulate) {
  const int64_t first = step - step % accumulate;
  return {.of_step = data.batches_in(step, step + 1), .of_update = data.batches_in(first, first + accumulate)};
}

void prepare_gradients(StageState& state, int64_t update, double samples_factor) {
  if (!state.prepared.insert(update).second) return;
  std::vector<at::Tensor>& gradients = gradients_of(state, update);
  const bool accumulates = state.updates != nullptr && state.updates->options.accumulate > 1;
  const double factor = samples_factor * state.gradient_factor;
  const double limit = state.updates == nullptr ? 0 : state.updates->options.clip_value;
  for (size_t index : state.trainable) {
    if (widens_late(state, index)) continue;
    if (state.optimizer.has_main_weight(state.weights[index])) gradients[index] = gradients[index].to(at::kFloat);
    if (factor != 1) stored_elements(gradients[index]).mul_(factor);
    if (accumulates) accumulate(state, index, gradients[index]);
    if (limit > 0 && makes_update(state)) stored_elements(gradients[index]).clamp_(-limit, limit);
  }
}

double squared_gradient_norm(const PlanTable& plan, StageState& state) {
  prepare_gradients(state, 0, 1);
  std::vector<at::Tensor> squares;
  for (size_t index : state.trainable) {
    const GroupRow* group = shared_group(plan, state.entry->params[index].group);
    if (group != nullptr && group->stages.front() != state.entry->stage) continue;
    const at::Tensor& gradient = gradients_of(state, 0)[index];
    squares.push_back(squared_norm(widens_late(state, index) ? float32_gradient(gradient, state.gradient_factor)
                                                             : stored_elements(gradient)));
  }
  return sum_of_numbers(squares);
}

void step_weights(StageState& state, int64_t update, UpdateFactors factors, bool keep) {
  prepare_gradients(state, update, factors.samples);
  const bool updates = makes_update(state);
  const double of_step = state.updates == nullptr ? 1 : state.updates->rate.factor(state.step);
  const double rate_factor = state.rate * of_step;
  if (keep) state.older[state.newest] = state.weights;
  ++state.newest;
  std::vector<at::Tensor>& gradients = gradients_of(state, update);
  std::vector<Optimizer::Update> of_parameters;
  of_parameters.reserve(state.trainable.size());
  std::deque<at::Tensor> parts;
  for (size_t index : state.trainable) {
    if (!updates) break;
    if (keep) state.weights[index] = state.weights[index].clone();
    if (widens_late(state, index)) {
      step_widened(state, index, gradients[index], factors, rate_factor);
      continue;
    }
    if (factors.norm != 1) stored_elements(gradients[index]).mul_(factors.norm);
    if (state.owned.empty()) {
      of_parameters.push_back({index, &state.weights[index], &gradients[index]});
    } else if (state.owned[index].count > 0) {
      at::Tensor& weight = parts.emplace_back(owned_part(state, index, state.weights[index]));
      of_parameters.push_back({index, &weight, &parts.emplace_back(owned_part(state, index, gradients[index]))});
    }
  }
  state.optimizer.step_all(of_parameters, rate_factor);
  if (updates && state.owned.empty()) follow_weights(state);
  state.gradients.erase(state.gradients.begin(), state.gradients.find(update));
}

void follow_weights(StageState& state) {
  if (state.averages.empty()) return;
  for (const size_t index : state.trainable)
    state.averages[index].lerp_(state.optimizer.updated_weight(index, state.weights[index]),
                                1 - state.updates->options.average_decay);
}

}  // namespace graphpipe::runtime
