#pragma once
// The maxima of windows over a plane. LibTorch's kernel processes one element at a time if channels are not the
// innermost axis.

#include <ATen/core/Tensor.h>

#include <tuple>

namespace graphpipe::runtime {

/// Bit-identical to at::max_pool2d_with_indices: the maxima, and the index of each within its plane. A NaN counts as
/// the largest; among equal elements the first wins.
std::tuple<at::Tensor, at::Tensor> max_pool_2d(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef strides,
                                               at::IntArrayRef pads, at::IntArrayRef dilations, bool rounds_up);

}  // namespace graphpipe::runtime
