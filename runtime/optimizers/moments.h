#pragma once
// The two moments of a gradient that Adam and its variants keep: running means of it and of its square (Kingma and Ba,
// Adam, 2015, Algorithm 1).

#include "runtime/optimizers/update_rule.h"

namespace graphpipe::runtime {

/// Indices into the state.
enum MomentPlace : size_t { kFirstMoment, kSecondMoment, kMomentSteps };

ParameterState fresh_moments(const at::Tensor& weight, const UpdateTerms& terms);
/// From the second moment, bias-corrected: the mean square of the gradient.
UpdateScale scale_of_moments(const at::Tensor& gradient, const ParameterState& state, const UpdateTerms& terms);

/// A count of updates in PyTorch's representation: a float32 scalar on the weight's device.
NamedTensor fresh_steps(const at::Tensor& weight);

/// AdamW's update; other rules use it for parameters that they do not handle.
double update_adamw(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms);

}  // namespace graphpipe::runtime
