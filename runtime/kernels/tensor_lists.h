#pragma once
// at::cat, at::index and at::index_put for braced lists of tensors. The headers of LibTorch's own list types take
// longer to compile in a stage than all others; these functions avoid them (runtime/compile_headers.cmake).

#include <cstdint>
#include <initializer_list>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// Concatenates the parts along the axis.
at::Tensor concat(std::initializer_list<at::Tensor> parts, int64_t axis);

/// Indices into data's first axes; an undefined one stands for the whole axis. Indices may be negative; one out of
/// range throws c10::Error.
using AxisIndices = std::initializer_list<at::Tensor>;

at::Tensor index(const at::Tensor& data, AxisIndices indices);
/// A copy of data with `values` written at the indices, or added if `adds`.
at::Tensor index_put(const at::Tensor& data, AxisIndices indices, const at::Tensor& values, bool adds);

}  // namespace graphpipe::runtime
