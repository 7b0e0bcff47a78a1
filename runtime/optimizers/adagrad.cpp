// Adagrad as in torch.optim.Adagrad, without learning-rate decay.

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "runtime/optimizers/moments.h"
#include "runtime/optimizers/registry.h"
#include "runtime/optimizers/sum_of_squares.h"

namespace graphpipe::runtime {

ParameterState fresh_sum(const at::Tensor& weight, const UpdateTerms&) {
  return {{"sum", at::zeros_like(weight)}, fresh_steps(weight)};
}

UpdateScale scale_of_sum(const at::Tensor& gradient, const ParameterState& state, const UpdateTerms&) {
  const double steps = state[kSumSteps].tensor.item<double>();
  return {.second_moment = state[kSumOfSquares].tensor.div(steps).expand_as(gradient).contiguous(),
          .gradient_norm = gradient.norm().item<double>()};
}

double update_adagrad_group(const UpdateGroup& group, const UpdateTerms& terms) {
  const OptimizerNumbers& numbers = terms.numbers;
  const std::vector<at::Tensor> steps = group.of_states(kSumSteps);
  at::_foreach_add_(steps, 1);
  at::_fused_adagrad_(group.weights, group.gradients, group.of_states(kSumOfSquares), steps, numbers.learning_rate,
                      /*lr_decay=*/0, numbers.weight_decay, numbers.epsilon, /*maximize=*/false);
  return numbers.learning_rate;
}

double update_adagrad(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms) {
  return update_adagrad_group({{weight}, {gradient}, {&state}}, terms);
}

bool adagrad_skips_zero_rows(const UpdateTerms& terms) {
  return terms.numbers.weight_decay == 0 && terms.numbers.epsilon > 0;
}

UpdateRule adagrad_rule() {
  return {.name = "adagrad",
          .fresh_state = fresh_sum,
          .update = update_adagrad,
          .update_group = update_adagrad_group,
          .scale = scale_of_sum,
          .skips_zero_rows = adagrad_skips_zero_rows};
}

}  // namespace graphpipe::runtime
