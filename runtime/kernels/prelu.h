#pragma once
// x where it is positive, else the slope times x (He et al., "Delving Deep into Rectifiers", ICCV 2015), and its
// gradients, in one pass each. The slope broadcasts to x: a number, one for each channel, or any other.

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

at::Tensor prelu(const at::Tensor& x, const at::Tensor& slope);
/// The gradient of x from that of the result.
at::Tensor prelu_input_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& slope);
/// That of the slope, in its shape.
at::Tensor prelu_slope_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& slope);

}  // namespace graphpipe::runtime
