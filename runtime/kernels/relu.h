#pragma once
// What is negative becomes zero, and the gradient of it; also in the memory of the operand, so that nothing is
// allocated. LibTorch's operators do the same, but for layers a few dozen wide their calls take longer than the
// elements.

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

at::Tensor relu(const at::Tensor& x);
/// The gradient of x from that of the result, and from the result.
at::Tensor relu_gradient(const at::Tensor& gradient, const at::Tensor& result);

/// The same in the memory of x, or of the gradient, which they return.
at::Tensor relu_(const at::Tensor& x);
at::Tensor relu_gradient_(const at::Tensor& gradient, const at::Tensor& result);

}  // namespace graphpipe::runtime
