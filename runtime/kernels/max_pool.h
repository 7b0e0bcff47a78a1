#pragma once
// The maxima of windows over a plane. LibTorch's kernel looks at one element after the other where channels lie apart.

#include <ATen/core/Tensor.h>

#include <tuple>

namespace graphpipe::runtime {

/// at::max_pool2d_with_indices, to the bit: the maxima, and where in its plane each lies. A NaN counts as the largest,
/// and of equal ones the first.
std::tuple<at::Tensor, at::Tensor> max_pool_2d(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef strides,
                                               at::IntArrayRef pads, at::IntArrayRef dilations, bool rounds_up);

}  // namespace graphpipe::runtime
