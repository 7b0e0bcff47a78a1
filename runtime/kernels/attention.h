#pragma once
// Softmax(scale * q k^T + mask) v, and its gradients, without materialising all scores: only the logarithm of the sum
// of exponentials of each row is kept (Dao et al., "FlashAttention", NeurIPS 2022). On CPUs with our own loops
// (attention_loops.h), on GPUs with LibTorch's kernels where it has one (gpu_attention.h).
//
// Sizes: q and the result [.., Q, D], k and v [.., K, D], with one to three leading axes that are equal in all of them,
// as samples, windows and heads; but that k and v may have fewer heads, the last of two or three, each for as many
// following heads of q (grouped queries; Ainslie et al., "GQA", EMNLP 2023); mask, if defined, of their floating type
// and broadcast to [.., Q, K]. A row that is fully masked, with negative infinity, has a result of zeros and
// contributes no gradients.

#include <tuple>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// The result and the row logarithms [.., Q], in float32 for narrower types. `causal`: row i sees columns up to i.
std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const at::Tensor& mask, bool causal, double scale);
/// The gradients of q, k and v from that of the result.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_gradient(const at::Tensor& gradient, const at::Tensor& q,
                                                                  const at::Tensor& k, const at::Tensor& v,
                                                                  const at::Tensor& result, const at::Tensor& rows,
                                                                  const at::Tensor& mask, bool causal, double scale);
/// The gradient of the mask, which is that of the scores summed down to its shape. On GPUs and in float64, operators
/// materialise all of them several times.
at::Tensor attention_mask_gradient(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& result, const at::Tensor& rows,
                                   const at::Tensor& mask, bool causal, double scale);

}  // namespace graphpipe::runtime
