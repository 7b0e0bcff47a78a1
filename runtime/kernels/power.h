#pragma once
// Powers with an exponent of one element, which LibTorch has faster ways for where it knows the number: squares are
// products.

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// x to the power of each exponent, as at::pow.
at::Tensor power(const at::Tensor& x, const at::Tensor& exponent);
/// The gradient of x from that of the result, in the result's shape. An exponent of 0 gives 0, even where the power of
/// x would be infinite.
at::Tensor power_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& exponent);

}  // namespace graphpipe::runtime
