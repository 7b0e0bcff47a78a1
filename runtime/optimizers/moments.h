#pragma once
// The two moments of a gradient that Adam and its kin keep: running means of it and of its square (Kingma and Ba, Adam,
// 2015, Algorithm 1).

#include "runtime/optimizers/update_rule.h"

namespace graphpipe::runtime {

/// Places in the state.
enum MomentPlace : size_t { kFirstMoment, kSecondMoment, kMomentSteps };

ParameterState fresh_moments(const at::Tensor& weight, const OptimizerNumbers& numbers);
/// The second moment corrected for its start. Undefined before the first update.
at::Tensor corrected_second_moment(const ParameterState& state, const OptimizerNumbers& numbers);

}  // namespace graphpipe::runtime
