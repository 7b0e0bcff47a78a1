#pragma once
// Rows times a matrix of weights, and the two gradients. Rows are all axes but the last; a weight is [K, N], or [N, K]
// if `transposed`. On CPUs the kernel depends only on the product's shape and the processor (kernel_choice.h), so every
// program of a plan makes the same choice and a pipeline computes the bits of the serial interpreter.

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// x [.., K] times the weight, plus bias [N] if it is defined: [.., N].
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool transposed);
/// The gradient of x from that of the result.
at::Tensor linear_input_gradient(const at::Tensor& gradient, const at::Tensor& weight, bool transposed);
/// The gradient of the weight, in its shape: the sum over all rows.
at::Tensor linear_weight_gradient(const at::Tensor& x, const at::Tensor& gradient, bool transposed);
/// Adds it to `sum`; an undefined `sum` becomes the gradient. Needs: `sum` may be written in place.
void add_linear_weight_gradient(at::Tensor& sum, const at::Tensor& x, const at::Tensor& gradient, bool transposed);

}  // namespace graphpipe::runtime
