#pragma once
// Clipping by the global norm, as torch.nn.utils.clip_grad_norm_.

#include <ATen/core/Tensor.h>

namespace graphpipe::runtime {

/// Sum of squares of a gradient, in double.
double squared_norm(const at::Tensor& gradient);

/// What gradients are multiplied with so that their global norm is at most `largest`; 1 where it is already, or where
/// largest is 0.
double clip_factor(double norm, double largest);

}  // namespace graphpipe::runtime
