#pragma once
// Rows divided by the root of their mean square (Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS
// 2019), in one pass over each row that stays in the cache.

#include <cstdint>
#include <tuple>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// x / rms * scale, and 1 / rms [.., 1, ..] with rms = sqrt(mean(x^2) + epsilon) over the last `axes` axes, which are
/// those of the scale.
std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const at::Tensor& scale, int64_t axes, double epsilon);
/// The gradient of x from that of the result.
at::Tensor rms_norm_input_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& inverse_rms,
                                   const at::Tensor& scale);

}  // namespace graphpipe::runtime
