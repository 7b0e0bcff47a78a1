#pragma once
// Depthwise convolutions of planes or lines, and their two gradients: x [N, C, H, W], weight [C, 1, h, w], or both
// without H and h. By loops of our own where wire/depthwise.h says so, else by LibTorch.

#include "runtime/kernels/convolution_geometry.h"

namespace graphpipe::runtime {

/// Adds bias [C] if it is defined.
at::Tensor depthwise_convolution(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                 const ConvolutionGeometry& geometry);
/// The gradient of x from that of the result. Only the shape of `x` matters.
at::Tensor depthwise_convolution_input_gradient(const at::Tensor& gradient, const at::Tensor& x,
                                                const at::Tensor& weight, const ConvolutionGeometry& geometry);
/// Adds the gradient of the weight to `sum`; an undefined `sum` becomes the gradient. Needs: `sum` may be written in
/// place. Only the shape of `weight` matters.
void add_depthwise_convolution_weight_gradient(at::Tensor& sum, const at::Tensor& gradient, const at::Tensor& x,
                                               const at::Tensor& weight, const ConvolutionGeometry& geometry);
at::Tensor depthwise_convolution_weight_gradient(const at::Tensor& gradient, const at::Tensor& x,
                                                 const at::Tensor& weight, const ConvolutionGeometry& geometry);

}  // namespace graphpipe::runtime
