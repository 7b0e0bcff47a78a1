#pragma once
// x times the normal distribution function of x (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016), and its
// gradient, in one pass over the elements with one exponential each. LibTorch's gradient takes several times as long.

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

at::Tensor gelu(const at::Tensor& x);
/// The gradient of x from that of the result.
at::Tensor gelu_gradient(const at::Tensor& gradient, const at::Tensor& x);

}  // namespace graphpipe::runtime
