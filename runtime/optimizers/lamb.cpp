// LAMB: You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, 2020, Algorithm 2, with
// phi(x) = x, as used by the authors, and a ratio of 1 if a norm is 0, so that weights can leave zero.

#include <cmath>

#include "runtime/optimizers/moments.h"
#include "runtime/optimizers/registry.h"

namespace graphpipe::runtime {
namespace {

double norm_of(const at::Tensor& tensor) { return tensor.norm().item<double>(); }

double update_lamb(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms) {
  const OptimizerNumbers& numbers = terms.numbers;
  at::Tensor &first = state[kFirstMoment].tensor, &second = state[kSecondMoment].tensor;
  first.mul_(numbers.beta1).add_(gradient, 1 - numbers.beta1);
  second.mul_(numbers.beta2).addcmul_(gradient, gradient, 1 - numbers.beta2);
  const double steps = state[kMomentSteps].tensor.add_(1).item<double>();
  at::Tensor update = first.div(1 - std::pow(numbers.beta1, steps));
  update.div_(second.div(1 - std::pow(numbers.beta2, steps)).sqrt_().add_(numbers.epsilon));
  if (numbers.weight_decay != 0) update.add_(weight, numbers.weight_decay);
  const double of_weight = norm_of(weight), of_update = norm_of(update);
  const double ratio = of_weight > 0 && of_update > 0 ? of_weight / of_update : 1;
  weight.sub_(update, numbers.learning_rate * ratio);
  return numbers.learning_rate * ratio;
}

}  // namespace

UpdateRule lamb_rule() {
  return {.name = "lamb", .fresh_state = fresh_moments, .update = update_lamb, .scale = scale_of_moments};
}

}  // namespace graphpipe::runtime
