#include "runtime/kernels/attention.h"

#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <limits>
#include <optional>
#include <vector>

namespace graphpipe::runtime {
namespace {

/// LibTorch's kernels take [batch, heads, length, width] with dense rows.
at::Tensor of_rank_4(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
  return dense.dim() == 3 ? dense.unsqueeze(1) : dense;
}
at::Tensor of_rank_as(const at::Tensor& like, const at::Tensor& tensor) {
  return like.dim() == 3 ? tensor.squeeze(1) : tensor;
}

std::optional<at::Tensor> expanded_mask(const at::Tensor& mask, const at::Tensor& q, const at::Tensor& k) {
  if (!mask.defined()) return std::nullopt;
  std::vector<int64_t> sizes = q.sizes().vec();
  sizes.back() = k.size(-2);
  return of_rank_4(mask.expand(sizes));
}

/// All scores, where there is no kernel without them.
at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& mask, bool causal, double scale) {
  // Scaled first: products of 16 bits could leave their range.
  at::Tensor scores = at::matmul(q.mul(scale), k.mT());
  if (mask.defined()) scores = scores.add(mask);
  if (!causal) return scores;
  const at::Tensor later = at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool)).triu(1);
  return scores.masked_fill(later, -std::numeric_limits<double>::infinity());
}

/// The weights that the softmax gave, from the rows' logarithms.
at::Tensor weights_of(const at::Tensor& scores, const at::Tensor& rows, const at::Tensor& q) {
  return scores.sub(rows.unsqueeze(-1)).exp().to(q.scalar_type());
}

/// The gradient of the scaled scores.
at::Tensor scores_gradient(const at::Tensor& gradient, const at::Tensor& v, const at::Tensor& result,
                           const at::Tensor& weights) {
  const at::Tensor inner = gradient.mul(result).sum(-1, /*keepdim=*/true);
  return weights.mul(at::matmul(gradient, v.mT()).sub(inner));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const at::Tensor& mask, bool causal, double scale) {
  // Autograd does not go through LibTorch's kernel to a mask.
  const bool records_mask = mask.defined() && at::GradMode::is_enabled() && mask.requires_grad();
  if (!q.is_cpu() || records_mask) {
    const at::Tensor scores = scores_of(q, k, mask, causal, scale).to(at::toOpMathType(q.scalar_type()));
    at::Tensor rows = at::logsumexp(scores, -1);
    return {at::matmul(weights_of(scores, rows, q), v), rows};
  }
  const auto [result, rows] = at::_scaled_dot_product_flash_attention_for_cpu(
      of_rank_4(q), of_rank_4(k), of_rank_4(v), 0.0, causal, expanded_mask(mask, q, k), scale);
  return {of_rank_as(q, result), of_rank_as(q, rows)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_gradient(const at::Tensor& gradient, const at::Tensor& q,
                                                                  const at::Tensor& k, const at::Tensor& v,
                                                                  const at::Tensor& result, const at::Tensor& rows,
                                                                  const at::Tensor& mask, bool causal, double scale) {
  if (!q.is_cpu()) {
    const at::Tensor scores = scores_of(q, k, mask, causal, scale);
    const at::Tensor weights = weights_of(scores, rows, q);
    const at::Tensor of_scores = scores_gradient(gradient, v, result, weights).mul(scale);
    return {at::matmul(of_scores, k), at::matmul(of_scores.mT(), q), at::matmul(weights.mT(), gradient)};
  }
  const auto [of_q, of_k, of_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      of_rank_4(gradient), of_rank_4(q), of_rank_4(k), of_rank_4(v), of_rank_4(result),
      rows.dim() == 2 ? rows.unsqueeze(1) : rows, 0.0, causal, expanded_mask(mask, q, k), scale);
  return {of_rank_as(q, of_q), of_rank_as(q, of_k), of_rank_as(q, of_v)};
}

at::Tensor attention_mask_gradient(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& result, const at::Tensor& rows,
                                   const at::Tensor& mask, bool causal, double scale) {
  return scores_gradient(gradient, v, result, weights_of(scores_of(q, k, mask, causal, scale), rows, q));
}

}  // namespace graphpipe::runtime
