// Adam as in torch.optim.Adam: Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015, Algorithm 1. Weight
// decay is added to the gradient.

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adam.h>

#include "runtime/optimizers/moments.h"
#include "runtime/optimizers/registry.h"

namespace graphpipe::runtime {
namespace {

double update_adam_group(const UpdateGroup& group, const UpdateTerms& terms) {
  const OptimizerNumbers& numbers = terms.numbers;
  const std::vector<at::Tensor> steps = group.of_states(kMomentSteps);
  at::_foreach_add_(steps, 1);
  at::_fused_adam_(group.weights, group.gradients, group.of_states(kFirstMoment), group.of_states(kSecondMoment), {},
                   steps, numbers.learning_rate, numbers.beta1, numbers.beta2, numbers.weight_decay, numbers.epsilon,
                   /*amsgrad=*/false, /*maximize=*/false);
  return numbers.learning_rate;
}

double update_adam(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms) {
  return update_adam_group({{weight}, {gradient}, {&state}}, terms);
}

}  // namespace

UpdateRule adam_rule() {
  return {.name = "adam",
          .fresh_state = fresh_moments,
          .update = update_adam,
          .update_group = update_adam_group,
          .scale = scale_of_moments};
}

}  // namespace graphpipe::runtime
