#pragma once
// Clipping by the global norm, as in torch.nn.utils.clip_grad_norm_.

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace graphpipe::runtime {

/// Sum of squares of each gradient, in double. Waits for a GPU once.
std::vector<double> squared_norms(std::span<const at::Tensor> gradients);

/// The factor that brings the global norm of gradients to at most `largest`; 1 if it already is, or if largest is 0.
double clip_factor(double norm, double largest);

}  // namespace graphpipe::runtime
