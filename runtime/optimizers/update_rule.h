#pragma once
// How one optimizer changes one parameter. A rule is plain functions over tensors: what it remembers of a parameter is
// a list of named tensors, so that checkpoints take and give it without knowing the optimizer.

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "runtime/io/safetensors.h"
#include "wire/optimizers.h"

namespace graphpipe::runtime {

using wire::OptimizerNumbers;
/// Under the names that PyTorch's optimizers give their state: "exp_avg", "momentum_buffer", "step".
using ParameterState = std::vector<NamedTensor>;

struct UpdateRule {
  /// As in wire/optimizers.h.
  const char* name;
  /// The state of a parameter that was never updated: on the weight's device, always the same names, types and shapes
  /// for a weight of this shape and these numbers. Empty where the rule remembers nothing.
  ParameterState (*fresh_state)(const at::Tensor& weight, const OptimizerNumbers& numbers);
  /// One update, in place. The bits depend on these arguments only.
  void (*update)(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state,
                 const OptimizerNumbers& numbers);
  /// The mean square of the gradient so far, where the rule divides by its root; null: it does not.
  at::Tensor (*second_moment)(const ParameterState& state, const OptimizerNumbers& numbers) = nullptr;
};

}  // namespace graphpipe::runtime
