#pragma once
// The gradient of determinants.

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// gradient [..] times the cofactors of x [.., n, n]: those of a matrix without inverse too, unless two or more of its
/// rows depend on the others, where they are 0 up to rounding.
at::Tensor determinant_gradient(const at::Tensor& gradient, const at::Tensor& x);

}  // namespace graphpipe::runtime
