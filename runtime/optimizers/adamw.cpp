// AdamW as in torch.optim.AdamW: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019, Algorithm 2.

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>

#include "runtime/optimizers/moments.h"
#include "runtime/optimizers/registry.h"

namespace graphpipe::runtime {

double update_adamw_group(const UpdateGroup& group, const UpdateTerms& terms) {
  const OptimizerNumbers& numbers = terms.numbers;
  const std::vector<at::Tensor> steps = group.of_states(kMomentSteps);
  at::_foreach_add_(steps, 1);
  at::_fused_adamw_(group.weights, group.gradients, group.of_states(kFirstMoment), group.of_states(kSecondMoment), {},
                    steps, numbers.learning_rate, numbers.beta1, numbers.beta2, numbers.weight_decay, numbers.epsilon,
                    /*amsgrad=*/false, /*maximize=*/false);
  return numbers.learning_rate;
}

double update_adamw(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms) {
  return update_adamw_group({{weight}, {gradient}, {&state}}, terms);
}

UpdateRule adamw_rule() {
  return {.name = "adamw",
          .fresh_state = fresh_moments,
          .update = update_adamw,
          .update_group = update_adamw_group,
          .scale = scale_of_moments};
}

}  // namespace graphpipe::runtime
