#pragma once
// The gradient of determinants.

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// gradient [..] times the cofactors of x [.., n, n]; also for singular matrices, unless two or more rows depend
/// linearly on the others: then the cofactors are 0 up to rounding.
at::Tensor determinant_gradient(const at::Tensor& gradient, const at::Tensor& x);

}  // namespace graphpipe::runtime
