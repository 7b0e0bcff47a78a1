#pragma once
// Rotary position embedding (Su et al., "RoFormer", 2021): the two halves of each row turned by the angles of its
// position, in one pass over the row.

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// x * cosine + [-second, first] * sine, with the halves of x's last axis. Sizes: x [.., D] with D even; cosine and
/// sine broadcast to x.
at::Tensor rotary(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine);
/// The gradient of x from that of the result.
at::Tensor rotary_gradient(const at::Tensor& gradient, const at::Tensor& cosine, const at::Tensor& sine);

}  // namespace graphpipe::runtime
