// Adagrad as in torch.optim.Adagrad, without learning-rate decay.

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

double update_adagrad(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms) {
  const OptimizerNumbers& numbers = terms.numbers;
  state[kSumSteps].tensor.add_(1);
  const at::Tensor change = numbers.weight_decay != 0 ? gradient.add(weight, numbers.weight_decay) : gradient;
  at::Tensor& sum = state[kSumOfSquares].tensor;
  sum.addcmul_(change, change);
  weight.addcdiv_(change, sum.sqrt().add_(numbers.epsilon), -numbers.learning_rate);
  return numbers.learning_rate;
}

bool adagrad_skips_zero_rows(const UpdateTerms& terms) {
  return terms.numbers.weight_decay == 0 && terms.numbers.epsilon > 0;
}

UpdateRule adagrad_rule() {
  return {.name = "adagrad",
          .fresh_state = fresh_sum,
          .update = update_adagrad,
          .scale = scale_of_sum,
          .skips_zero_rows = adagrad_skips_zero_rows};
}

}  // namespace graphpipe::runtime
