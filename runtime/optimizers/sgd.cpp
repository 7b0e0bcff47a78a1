// SGD with momentum, as in torch.optim.SGD without dampening; Nesterov's momentum in the form of Sutskever et al., On
// the importance of initialization and momentum in deep learning, 2013, section 2, with the buffer that PyTorch keeps.

#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "runtime/kernels/vector_loops.h"
#include "runtime/optimizers/registry.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

namespace graphpipe::runtime {
namespace {

/// Without momentum, the bits of LibTorch's fused SGD: it too rounds once after a product and a sum.
template <bool kDecays>
GRAPHPIPE_AVX2 void update_elements(float* __restrict weight, const float* __restrict gradient, int64_t count,
                                    float weight_decay, float rate) {
  for (int64_t i = 0; i < count; ++i) {
    const float change = kDecays ? __builtin_fmaf(weight[i], weight_decay, gradient[i]) : gradient[i];
    weight[i] = __builtin_fmaf(-change, rate, weight[i]);
  }
}

}  // namespace
}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace graphpipe::runtime {
namespace {

bool loops_take(const UpdateGroup& group, const OptimizerNumbers& numbers) {
  const auto takes = [](const at::Tensor& tensor) { return loop_takes(tensor); };
  return has_avx2() && numbers.momentum == 0 && std::ranges::all_of(group.weights, takes) &&
         std::ranges::all_of(group.gradients, takes);
}

/// Where weights lie in the caches, LibTorch takes twice as long.
void update_in_loops(const UpdateGroup& group, const OptimizerNumbers& numbers) {
  const auto update = numbers.weight_decay == 0 ? update_elements<false> : update_elements<true>;
  const auto weight_decay = static_cast<float>(numbers.weight_decay), rate = static_cast<float>(numbers.learning_rate);
  for (size_t i = 0; i < group.weights.size(); ++i) {
    float* const weight = group.weights[i].mutable_data_ptr<float>();
    const float* const gradient = group.gradients[i].const_data_ptr<float>();
    for_parts(group.weights[i].numel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
      update(weight + begin, gradient + begin, end - begin, weight_decay, rate);
    });
  }
}

ParameterState fresh_velocity(const at::Tensor& weight, const UpdateTerms& terms) {
  if (terms.numbers.momentum == 0) return {};
  return {{"momentum_buffer", at::zeros_like(weight)}};
}

// LibTorch's fused SGD (2.11) fails to update whole vectors of 16-bit weights on the CPU: the same update in separate
// ops.
void sgd_of_16_bits(const at::Tensor& weight, at::Tensor change, ParameterState& state,
                    const OptimizerNumbers& numbers) {
  if (numbers.weight_decay != 0) change = change.add(weight, numbers.weight_decay);
  if (!state.empty()) {
    at::Tensor& velocity = state[0].tensor;
    velocity.mul_(numbers.momentum).add_(change);
    change = numbers.nesterov ? change.add(velocity, numbers.momentum) : velocity;
  }
  weight.sub_(change, numbers.learning_rate);
}

double update_sgd_group(const UpdateGroup& group, const UpdateTerms& terms) {
  const OptimizerNumbers& numbers = terms.numbers;
  const at::Tensor& first = group.weights.front();
  if (first.element_size() == 2 && first.is_cpu()) {
    for (size_t i = 0; i < group.weights.size(); ++i)
      sgd_of_16_bits(group.weights[i], group.gradients[i], *group.states[i], numbers);
    return numbers.learning_rate;
  }
  if (loops_take(group, numbers)) {
    update_in_loops(group, numbers);
    return numbers.learning_rate;
  }
  const std::vector<at::Tensor> momentum =
      group.states.front()->empty() ? std::vector<at::Tensor>() : group.of_states(0);
  at::_fused_sgd_(group.weights, group.gradients, momentum, numbers.weight_decay, numbers.momentum,
                  numbers.learning_rate, /*dampening=*/0, numbers.nesterov, /*maximize=*/false,
                  /*is_first_step=*/false);
  return numbers.learning_rate;
}

double update_sgd(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms) {
  return update_sgd_group({{weight}, {gradient}, {&state}}, terms);
}

}  // namespace

UpdateRule sgd_rule() {
  return {.name = "sgd",
          .fresh_state = fresh_velocity,
          .update = update_sgd,
          .update_group = update_sgd_group,
          .skips_zero_rows = [](const UpdateTerms& terms) {
            return terms.numbers.momentum == 0 && terms.numbers.weight_decay == 0;
          }};
}

}  // namespace graphpipe::runtime
