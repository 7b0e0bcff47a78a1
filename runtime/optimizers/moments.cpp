#include "runtime/optimizers/moments.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace graphpipe::runtime {

NamedTensor fresh_steps(const at::Tensor& weight) {
  return {"step", at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(weight.device()))};
}

ParameterState fresh_moments(const at::Tensor& weight, const UpdateTerms&) {
  return {{"exp_avg", at::zeros_like(weight)}, {"exp_avg_sq", at::zeros_like(weight)}, fresh_steps(weight)};
}

UpdateScale scale_of_moments(const at::Tensor&, const ParameterState& state, const UpdateTerms& terms) {
  const double correction = 1 - std::pow(terms.numbers.beta2, state[kMomentSteps].tensor.item<double>());
  const at::Tensor moment = state[kSecondMoment].tensor.div(correction);
  return {.second_moment = moment, .gradient_norm = std::sqrt(moment.sum(at::kDouble).item<double>())};
}

}  // namespace graphpipe::runtime
