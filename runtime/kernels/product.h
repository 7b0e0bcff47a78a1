#pragma once
// Products of matrices on CPUs by the kernel that is chosen for them (kernel_choice.h): what linear layers and
// convolutions are made of.

#include "runtime/kernels/kernel_choice.h"

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// The shape of a times b, and how they lie.
Product product_of(const at::Tensor& a, const at::Tensor& b);
/// Of these operands: oneDNN's operators take float32 on CPUs, and autograd does not see through them.
ProductKernel product_kernel(const at::Tensor& a, const at::Tensor& b);

/// a [M, K] times b [K, N], both perhaps transposed views, plus bias [N] where it is defined. By BLAS where this
/// LibTorch has no oneDNN. Needs for oneDNN: float32 on a CPU, and no autograd.
at::Tensor matrix_product(ProductKernel kernel, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias);

/// Writes a [M, K] times b [K, N] to result [M, N], or adds it to what is there.
void product_into(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool adds);

}  // namespace graphpipe::runtime
