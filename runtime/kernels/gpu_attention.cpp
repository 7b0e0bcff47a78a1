#include "runtime/kernels/gpu_attention.h"

#include <ATen/SDPBackend.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include <limits>
#include <utility>

#include "runtime/kernels/fixed_order.h"

namespace graphpipe::runtime {
namespace {

/// The flash kernels need a width of so many numbers, to which LibTorch's own callers pad.
constexpr int64_t kFlashWidth = 8;
/// The memory-efficient kernels read and write logarithms of so many rows at a time.
constexpr int64_t kRowsPadded = 32;

/// Padding has an infinite logarithm, so that its weights are zero.
at::Tensor padded_rows(const at::Tensor& rows) {
  const int64_t missing = (kRowsPadded - rows.size(-1) % kRowsPadded) % kRowsPadded;
  if (missing == 0) return rows.contiguous();
  return at::constant_pad_nd(rows, {0, missing}, std::numeric_limits<double>::infinity());
}

}  // namespace

GpuAttention gpu_attention_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                                  bool causal, double scale) {
  if (!q.is_cuda() || mask.defined()) return GpuAttention::kNone;
  switch (static_cast<at::SDPBackend>(at::_fused_sdp_choice(q, k, v, {}, /*dropout_p=*/0.0, causal, scale))) {
    case at::SDPBackend::flash_attention:
      return q.size(-1) % kFlashWidth == 0 ? GpuAttention::kFlash : GpuAttention::kNone;
    case at::SDPBackend::efficient_attention:
      return GpuAttention::kEfficient;
    default:
      return GpuAttention::kNone;
  }
}

std::tuple<at::Tensor, at::Tensor> gpu_attention(GpuAttention kernel, const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v, bool causal, double scale) {
  if (kernel == GpuAttention::kFlash) {
    auto parts =
        at::_scaled_dot_product_flash_attention(q, k, v, /*dropout_p=*/0.0, causal, /*return_debug_mask=*/false, scale);
    return {std::move(std::get<0>(parts)), std::move(std::get<1>(parts))};
  }
  auto parts = at::_scaled_dot_product_efficient_attention(q, k, v, {}, /*compute_log_sumexp=*/true, /*dropout_p=*/0.0,
                                                           causal, scale);
  return {std::move(std::get<0>(parts)), std::get<1>(parts).narrow(-1, 0, q.size(-2))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gpu_attention_gradient(GpuAttention kernel, const at::Tensor& gradient,
                                                                      const at::Tensor& q, const at::Tensor& k,
                                                                      const at::Tensor& v, const at::Tensor& result,
                                                                      const at::Tensor& rows, bool causal,
                                                                      double scale) {
  const FixedOrder order;  // of the sums of several blocks of a head
  const at::Tensor no_dropout = at::empty({0}, q.options().dtype(at::kLong));
  if (kernel == GpuAttention::kFlash)
    return at::_scaled_dot_product_flash_attention_backward(gradient, q, k, v, result, rows.contiguous(), {}, {},
                                                            q.size(-2), k.size(-2), /*dropout_p=*/0.0, causal,
                                                            no_dropout, no_dropout, scale);
  auto parts = at::_scaled_dot_product_efficient_attention_backward(gradient, q, k, v, {}, result, padded_rows(rows),
                                                                    no_dropout, no_dropout, /*dropout_p=*/0.0,
                                                                    {true, true, true, false}, causal, scale);
  return {std::move(std::get<0>(parts)), std::move(std::get<1>(parts)), std::move(std::get<2>(parts))};
}

}  // namespace graphpipe::runtime
