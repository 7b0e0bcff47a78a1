#pragma once
// The sum of squared gradients that Adagrad keeps: Duchi et al., Adaptive Subgradient Methods, 2011, Figure 1,
// diagonal.

#include "runtime/optimizers/update_rule.h"

namespace graphpipe::runtime {

/// Places in the state.
enum SumPlace : size_t { kSumOfSquares, kSumSteps };

ParameterState fresh_sum(const at::Tensor& weight, const UpdateTerms& terms);
/// By the mean of the squares so far. The update divides by the root of their sum, which is no less.
UpdateScale scale_of_sum(const at::Tensor& gradient, const ParameterState& state, const UpdateTerms& terms);

/// Adagrad's update, which the row-wise one takes for parameters that are no tables.
double update_adagrad(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms);
/// Both spare rows whose gradient is zero, without decay of the weights and where no division is by zero.
bool adagrad_spares_rows(const UpdateTerms& terms);

}  // namespace graphpipe::runtime
