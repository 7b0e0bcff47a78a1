#pragma once
// Convolutions of planes in one group, and their two gradients: x [N, C, H, W], weight [M, C, h, w]. Computed by
// LibTorch's kernels, or on CPUs by Winograd's method (winograd.h), or as products of the weights with the windows
// (window_products.h). Which of them, wire/convolution.h and kernel_choice.h say.

#include <ATen/core/Tensor.h>

#include "runtime/kernels/convolution_geometry.h"
#include "wire/product_table.h"

namespace graphpipe::runtime {

/// Adds bias [M] if it is defined.
at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const ConvolutionGeometry& geometry);
/// The gradient of x from that of the result. Only the shape of `x` matters.
at::Tensor convolution_input_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                                      const ConvolutionGeometry& geometry);
/// Adds the gradient of the weight, the sum over all windows, to `sum`; an undefined `sum` becomes the gradient. Needs:
/// `sum` may be written in place. Only the shape of `weight` matters.
void add_convolution_weight_gradient(at::Tensor& sum, const at::Tensor& gradient, const at::Tensor& x,
                                     const at::Tensor& weight, const ConvolutionGeometry& geometry);
at::Tensor convolution_weight_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                                       const ConvolutionGeometry& geometry);

/// A pass with operands of ones, of which those exist that it reads: to measure it by any kernel.
class MeasuredConvolution {
 public:
  explicit MeasuredConvolution(const wire::Convolution& of);
  void run(wire::ConvolutionKernel kernel) const;

 private:
  wire::Convolution of_;
  at::Tensor x_, weight_, gradient_;
};

}  // namespace graphpipe::runtime
