#pragma once
// The sum of squared gradients that Adagrad keeps: Duchi et al., Adaptive Subgradient Methods, 2011, Figure 1,
// diagonal.

#include "runtime/optimizers/update_rule.h"

namespace graphpipe::runtime {

/// Indices into the state.
enum SumPlace : size_t { kSumOfSquares, kSumSteps };

ParameterState fresh_sum(const at::Tensor& weight, const UpdateTerms& terms);
/// From the mean of the squares so far. The update divides by the root of their sum, which is at least as large.
UpdateScale scale_of_sum(const at::Tensor& gradient, const ParameterState& state, const UpdateTerms& terms);

/// Adagrad's update; the row-wise variant uses it for parameters that are not tables.
double update_adagrad(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms);
/// Both leave rows with a zero gradient unchanged if there is no weight decay and no division by zero.
bool adagrad_skips_zero_rows(const UpdateTerms& terms);

}  // namespace graphpipe::runtime
