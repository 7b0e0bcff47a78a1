#pragma once
// The k largest or smallest elements along an axis, in order. Of equal elements the one with the lower index comes
// first, as ONNX asks for; at::topk has any order, and sorting all takes ten times as long.

#include <cstdint>
#include <tuple>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// Values and indices. NaN counts as the largest. Needs: 0 <= k <= the size of the axis.
std::tuple<at::Tensor, at::Tensor> top_k(const at::Tensor& x, int64_t k, int64_t axis, bool largest);

}  // namespace graphpipe::runtime
