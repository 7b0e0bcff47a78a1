#pragma once
// Products of matrices on CPUs with the kernel that is chosen for them (kernel_choice.h): the building block of linear
// layers and convolutions.

#include "runtime/kernels/kernel_choice.h"
#include "runtime/kernels/small_product.h"

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// The shape of a times b, and the layout of the operands.
Product product_of(const at::Tensor& a, const at::Tensor& b);
/// The kernel for these operands: all but BLAS take float32 on CPUs, and autograd cannot record them.
ProductKernel product_kernel(const at::Tensor& a, const at::Tensor& b);

/// a [M, K] times b [K, N], either of which may be a transposed view, plus bias [N] if it is defined. Falls back to
/// BLAS if this LibTorch has no oneDNN. Needs for all but BLAS: float32 on a CPU, and no autograd; for our own loops
/// also has_packed_product(), sizes of at least 1, and a contiguous bias.
at::Tensor matrix_product(ProductKernel kernel, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias);

/// The same with the kernel that is chosen; small products of floats on a CPU have one of their own (small_product.h).
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias);

/// Writes a [M, K] times b [K, N] to result [M, N], or adds it to what is there; with the kernel that is chosen.
void product_into(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool adds);

/// Whether own loops multiply matrices that lie so: the small ones, and those for which packed_product.h is chosen.
bool is_own_product(const MatrixView& left, const MatrixView& right);
/// result [rows, columns], contiguous, = left times right, plus bias [columns] unless it is null; or adds the product
/// to what stands there. Needs: is_own_product().
void multiply_own(const MatrixView& left, const MatrixView& right, const float* bias, float* result, bool adds);

}  // namespace graphpipe::runtime
