// AdamW as in torch.optim.AdamW: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019, Algorithm 2.

#include <ATen/ops/_fused_adamw.h>

#include "runtime/optimizers/moments.h"
#include "runtime/optimizers/registry.h"

namespace graphpipe::runtime {

double update_adamw(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms) {
  const OptimizerNumbers& numbers = terms.numbers;
  state[kMomentSteps].tensor.add_(1);
  at::_fused_adamw_({weight}, {gradient}, {state[kFirstMoment].tensor}, {state[kSecondMoment].tensor}, {},
                    {state[kMomentSteps].tensor}, numbers.learning_rate, numbers.beta1, numbers.beta2,
                    numbers.weight_decay, numbers.epsilon, /*amsgrad=*/false, /*maximize=*/false);
  return numbers.learning_rate;
}

UpdateRule adamw_rule() {
  return {.name = "adamw", .fresh_state = fresh_moments, .update = update_adamw, .scale = scale_of_moments};
}

}  // namespace graphpipe::runtime
