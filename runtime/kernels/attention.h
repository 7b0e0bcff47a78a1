#pragma once
// Softmax(scale * q k^T + mask) v, and its gradients, without a tensor of all scores: of them the logarithm of the sum
// of the exponentials of each row is kept (Dao et al., "FlashAttention", NeurIPS 2022). On CPUs by loops of
// our own (attention_loops.h).
//
// Sizes: q and the result [.., Q, D], k and v [.., K, D], with one or two leading axes that are alike in all; mask,
// where defined, of their floating type and broadcast to [.., Q, K]. A row of which the mask hides all, by negative
// infinity, has a result of zeros and gives no gradients.

#include <tuple>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// The result and the row logarithms [.., Q], in float32 for types below it. `causal`: row i sees columns up to i.
std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const at::Tensor& mask, bool causal, double scale);
/// The gradients of q, k and v from that of the result.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_gradient(const at::Tensor& gradient, const at::Tensor& q,
                                                                  const at::Tensor& k, const at::Tensor& v,
                                                                  const at::Tensor& result, const at::Tensor& rows,
                                                                  const at::Tensor& mask, bool causal, double scale);
/// The gradient of the scores [.., Q, K]: that of a mask, before it is summed down to the mask's shape. Makes them all.
at::Tensor attention_mask_gradient(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& result, const at::Tensor& rows,
                                   const at::Tensor& mask, bool causal, double scale);

}  // namespace graphpipe::runtime
