#include "runtime/executor/optimizer.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

namespace graphpipe::runtime {

OptimizerNumbers optimizer_numbers(OptimizerKind kind, const wire::RunOptions& options) {
  const bool adam = kind == OptimizerKind::kAdamW;
  return {.kind = kind,
          .learning_rate = options.optimizer.learning_rate.value_or(adam ? wire::kAdamWLearningRate : wire::kSgdLearningRate),
          .momentum = options.optimizer.momentum,
          .weight_decay = options.optimizer.weight_decay.value_or(adam ? wire::kAdamWWeightDecay : 0),
          .beta1 = options.optimizer.beta1,
          .beta2 = options.optimizer.beta2,
          .epsilon = options.optimizer.epsilon};
}

namespace {

/// LibTorch's fused SGD leaves whole vectors of 16-bit weights as they are on the CPU (2.11): the same in single ops.
void sgd_of_16_bits(const OptimizerNumbers& numbers, at::Tensor& weight, at::Tensor change, at::Tensor& velocity,
                    bool first) {
  if (numbers.weight_decay != 0) change = change.add(weight, numbers.weight_decay);
  if (velocity.defined()) {
    if (first) velocity.copy_(change);
    else velocity.mul_(numbers.momentum).add_(change);
    change = velocity;
  }
  weight.sub_(change, numbers.learning_rate);
}

}  // namespace

void Optimizer::step(size_t index, at::Tensor& weight, const at::Tensor& gradient) {
  State& state = states_[index];
  const bool first = !state.started;
  state.started = true;
  const bool adam = numbers_.kind == OptimizerKind::kAdamW;
  if (first && (adam || numbers_.momentum != 0)) state.first = at::zeros_like(weight);
  if (first && adam) {
    state.second = at::zeros_like(weight);
    state.steps = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(weight.device()));
  }
  if (adam) {
    state.steps.add_(1);
    at::_fused_adamw_({weight}, {gradient}, {state.first}, {state.second}, {}, {state.steps}, numbers_.learning_rate,
                      numbers_.beta1, numbers_.beta2, numbers_.weight_decay, numbers_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
    return;
  }
  if (weight.element_size() == 2 && weight.device().is_cpu())
    return sgd_of_16_bits(numbers_, weight, gradient, state.first, first);
  std::vector<at::Tensor> momentum;
  if (state.first.defined()) momentum.push_back(state.first);
  at::_fused_sgd_({weight}, {gradient}, momentum, numbers_.weight_decay, numbers_.momentum, numbers_.learning_rate,
                  /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/first);
}

at::Tensor Optimizer::second_moment(size_t index) const {
  const State& state = states_[index];
  if (!state.second.defined()) return {};
  return state.second.div(1 - std::pow(numbers_.beta2, state.steps.item<double>()));
}

double squared_norm(const at::Tensor& gradient) {
  const at::Tensor wide = gradient.to(at::kDouble).flatten();
  return wide.dot(wide).item<double>();
}

double clip_factor(double norm, double largest) {
  return largest == 0 ? 1 : std::min(1.0, largest / (norm + 1e-6));  // 1e-6 as in clip_grad_norm_
}

}  // namespace graphpipe::runtime
