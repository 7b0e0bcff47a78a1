#pragma once
// Attention by LibTorch's fused kernels for GPUs: FlashAttention for 16-bit types (Dao, "FlashAttention-2", ICLR 2024)
// and CUTLASS's memory-efficient attention (Rabe and Staats, 2021) for the others. Sizes are those of attention.h, with
// two leading axes and dense rows.

#include <ATen/core/Tensor.h>

#include <tuple>

namespace graphpipe::runtime {

enum class GpuAttention { kNone, kFlash, kEfficient };

/// The kernel that this GPU has for such operands; kNone on a CPU. There is none with a mask: from the logarithm of a
/// row's sum alone these kernels cannot differentiate a row that the mask hides with one large number (attention.cpp).
GpuAttention gpu_attention_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                                  bool causal, double scale);

/// As attention() and attention_gradient(), with a kernel that is not kNone, the same for both.
std::tuple<at::Tensor, at::Tensor> gpu_attention(GpuAttention kernel, const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v, bool causal, double scale);
std::tuple<at::Tensor, at::Tensor, at::Tensor> gpu_attention_gradient(GpuAttention kernel, const at::Tensor& gradient,
                                                                      const at::Tensor& q, const at::Tensor& k,
                                                                      const at::Tensor& v, const at::Tensor& result,
                                                                      const at::Tensor& rows, bool causal,
                                                                      double scale);

}  // namespace graphpipe::runtime
