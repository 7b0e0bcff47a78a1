// Adam as in torch.optim.Adam: Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015, Algorithm 1. Weight
// decay is added to the gradient.

#include <ATen/ops/_fused_adam.h>

#include "runtime/optimizers/moments.h"
#include "runtime/optimizers/registry.h"

namespace graphpipe::runtime {
namespace {

double update_adam(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms) {
  const OptimizerNumbers& numbers = terms.numbers;
  state[kMomentSteps].tensor.add_(1);
  at::_fused_adam_({weight}, {gradient}, {state[kFirstMoment].tensor}, {state[kSecondMoment].tensor}, {},
                   {state[kMomentSteps].tensor}, numbers.learning_rate, numbers.beta1, numbers.beta2,
                   numbers.weight_decay, numbers.epsilon, /*amsgrad=*/false, /*maximize=*/false);
  return numbers.learning_rate;
}

}  // namespace

UpdateRule adam_rule() {
  return {.name = "adam", .fresh_state = fresh_moments, .update = update_adam, .scale = scale_of_moments};
}

}  // namespace graphpipe::runtime
