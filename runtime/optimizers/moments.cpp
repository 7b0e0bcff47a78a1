#include "runtime/optimizers/moments.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace graphpipe::runtime {

ParameterState fresh_moments(const at::Tensor& weight, const OptimizerNumbers&) {
  return {{"exp_avg", at::zeros_like(weight)},
          {"exp_avg_sq", at::zeros_like(weight)},
          {"step", at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(weight.device()))}};
}

at::Tensor corrected_second_moment(const ParameterState& state, const OptimizerNumbers& numbers) {
  return state[kSecondMoment].tensor.div(1 - std::pow(numbers.beta2, state[kMomentSteps].tensor.item<double>()));
}

}  // namespace graphpipe::runtime
