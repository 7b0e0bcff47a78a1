#pragma once
// The sum of a matrix over its rows, such as the gradient of a bias.

#include <cstdint>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// The sum over the first `axes` axes, at least one, without them. Of floats on a CPU each element is summed in order
/// of the rows, in parts, whatever the number of threads.
at::Tensor sum_leading_axes(const at::Tensor& x, int64_t axes);

}  // namespace graphpipe::runtime
