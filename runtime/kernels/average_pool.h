#pragma once
// Averages over windows of planes, as depthwise convolutions whose kernels are constant. LibTorch's kernel processes
// one element at a time if channels are not the innermost axis.

#include <ATen/core/Tensor.h>

#include <optional>

namespace graphpipe::runtime {

/// at::avg_pool2d and at::avg_pool2d_backward, to rounding, where the loops of depthwise convolutions fit (float32 on a
/// CPU, no window beyond the pads); else these themselves.
at::Tensor average_pool_2d(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef strides, at::IntArrayRef pads,
                           bool rounds_up, bool counts_pads, std::optional<int64_t> divisor);
/// Only the shape of `x` matters.
at::Tensor average_pool_2d_gradient(const at::Tensor& gradient, const at::Tensor& x, at::IntArrayRef kernel,
                                    at::IntArrayRef strides, at::IntArrayRef pads, bool rounds_up, bool counts_pads,
                                    std::optional<int64_t> divisor);

}  // namespace graphpipe::runtime
