#pragma once
// Clipping by the global norm, as in torch.nn.utils.clip_grad_norm_.

#include <ATen/core/Tensor.h>

#include <span>

namespace graphpipe::runtime {

/// The sum of squares of a gradient: one number, in double, on its device.
at::Tensor squared_norm(const at::Tensor& gradient);
/// The sum of such numbers, in their order. Waits for a GPU once.
double sum_of_numbers(std::span<const at::Tensor> numbers);

/// The factor that brings the global norm of gradients to at most `largest`; 1 if it already is, or if largest is 0.
double clip_factor(double norm, double largest);

}  // namespace graphpipe::runtime
