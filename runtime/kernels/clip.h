#pragma once
// The gradient of elements that are cut off at bounds, in one pass; by operators of LibTorch it takes four.

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// The gradient of x from that of the result: where x lies within the bounds, these included, as torch.clamp has it;
/// zero elsewhere, and where x is NaN. A bound may be infinite.
at::Tensor clip_gradient(const at::Tensor& gradient, const at::Tensor& x, double low, double high);

}  // namespace graphpipe::runtime
