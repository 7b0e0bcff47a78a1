#pragma once
// The two moments of a gradient that Adam and its kin keep: running means of it and of its square (Kingma and Ba, Adam,
// 2015, Algorithm 1).

#include "runtime/optimizers/update_rule.h"

namespace graphpipe::runtime {

/// Places in the state.
enum MomentPlace : size_t { kFirstMoment, kSecondMoment, kMomentSteps };

ParameterState fresh_moments(const at::Tensor& weight, const UpdateTerms& terms);
/// By the second moment, corrected for its start: the mean square of the gradient.
UpdateScale scale_of_moments(const at::Tensor& gradient, const ParameterState& state, const UpdateTerms& terms);

/// A count of updates as PyTorch keeps one: a float32 scalar on the weight's device.
NamedTensor fresh_steps(const at::Tensor& weight);

/// AdamW's update, which other rules take for parameters that are not theirs.
double update_adamw(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms);

}  // namespace graphpipe::runtime
