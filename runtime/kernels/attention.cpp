#include "runtime/kernels/attention.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/unflatten.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/kernels/attention_loops.h"
#include "runtime/kernels/gpu_attention.h"

namespace graphpipe::runtime {
namespace {

/// What attention_loops.h supports. Where no GPU kernel does either, LibTorch's operators compute all scores.
bool loops_take(const at::Tensor& q) {
  const at::ScalarType type = q.scalar_type();
  return q.is_cpu() && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}
/// Autograd cannot record the loops.
bool is_recorded(const at::Tensor& tensor) {
  return tensor.defined() && at::GradMode::is_enabled() && tensor.requires_grad();
}

/// [.., length, width] with dense rows.
at::Tensor with_dense_rows(const at::Tensor& tensor) { return tensor.stride(-1) == 1 ? tensor : tensor.contiguous(); }
/// Heads are the inner axis in memory, so that the result of merging heads is a view.
at::Tensor empty_heads_like(const at::Tensor& heads) {
  std::vector<int64_t> sizes = heads.sizes().vec();
  if (sizes.size() == 3) return at::empty(sizes, heads.options());
  std::swap(sizes[sizes.size() - 3], sizes[sizes.size() - 2]);
  return at::empty(sizes, heads.options()).transpose(-3, -2);
}

/// All heads of all samples.
int64_t heads_of(const at::Tensor& tensor) { return c10::multiply_integers(tensor.sizes().slice(0, tensor.dim() - 2)); }
/// Head `index` of them.
template <typename T>
Rows<T> head_of(const at::Tensor& tensor, int64_t index) {
  auto* data = static_cast<std::remove_const_t<T>*>(tensor.data_ptr());
  for (int64_t axis = tensor.dim() - 3; axis >= 0; --axis) {
    data += index % tensor.size(axis) * tensor.stride(axis);
    index /= tensor.size(axis);
  }
  return {data, tensor.stride(-2)};
}
template <typename T>
Mask<T> mask_of(const at::Tensor& mask, int64_t index) {
  if (!mask.defined()) return {};
  const Rows<const T> rows = head_of<const T>(mask, index);
  return {rows.data, rows.stride, mask.stride(-1)};
}
at::Tensor expanded_mask(const at::Tensor& mask, const at::Tensor& q, const at::Tensor& k) {
  if (!mask.defined()) return {};
  std::vector<int64_t> sizes = q.sizes().vec();
  sizes.back() = k.size(-2);
  return mask.expand(sizes);
}

HeadSizes sizes_of(const at::Tensor& q, const at::Tensor& k, bool causal, double scale) {
  return {q.size(-2), k.size(-2), q.size(-1), static_cast<float>(scale), causal};
}

/// The number of heads of q that share one of k and v.
int64_t heads_per_key(const at::Tensor& q, const at::Tensor& k) { return q.dim() == 3 ? 1 : q.size(-3) / k.size(-3); }

/// The heads of q that are attended to at once: those that share one of k, or one where threads would have nothing to
/// do.
int64_t heads_at_once(const at::Tensor& q, const at::Tensor& k) {
  return heads_of(k) < at::get_num_threads() ? 1 : heads_per_key(q, k);
}

/// Calls `attend(heads, scratch)` for every `together` heads of q, which share one of k, where `head(index, of_key)`
/// makes head `index` of q with head `of_key` of k and v, with `floats` floats of scratch.
template <typename Make, typename Attend>
void for_heads(const at::Tensor& q, const at::Tensor& k, int64_t together, int64_t floats, const Make& head,
               const Attend& attend) {
  const int64_t shared = heads_per_key(q, k);
  at::parallel_for(0, heads_of(q) / together, /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    at::Tensor scratch = at::empty({floats}, at::TensorOptions().dtype(at::kFloat));
    std::vector<decltype(head(begin, begin))> heads;
    heads.reserve(static_cast<size_t>(together));
    for (int64_t first = begin * together; first < end * together; first += together) {
      heads.clear();
      // Heads are numbered through all samples, in q as in k.
      for (int64_t i = 0; i < together; ++i) heads.push_back(head(first + i, first / shared));
      attend(std::span(std::as_const(heads)), scratch.mutable_data_ptr<float>());
    }
  });
}

/// A head of k or v for each of q.
at::Tensor for_all_heads(const at::Tensor& k, int64_t shared) {
  return shared == 1 ? k : k.repeat_interleave(shared, -3);
}
/// The gradient of k or v from those of its copies.
at::Tensor sum_of_heads(at::Tensor gradient, int64_t shared) {
  return shared == 1 ? std::move(gradient) : gradient.unflatten(-3, {-1, shared}).sum(-3);
}

/// The two leading axes that GPU kernels want, with dense rows.
at::Tensor with_two_axes(const at::Tensor& tensor) {
  const at::Tensor dense = with_dense_rows(tensor);
  if (dense.dim() == 3) return dense.unsqueeze(1);
  return dense.dim() == 5 ? dense.flatten(0, 1) : dense;
}
/// What GPU kernels read, with a head of k and v for each of q.
struct GpuOperands {
  GpuOperands(const at::Tensor& of_q, const at::Tensor& of_k, const at::Tensor& of_v)
      : shared(heads_per_key(of_q, of_k)),
        q(with_two_axes(of_q)),
        k(for_all_heads(with_two_axes(of_k), shared)),
        v(for_all_heads(with_two_axes(of_v), shared)) {}
  int64_t shared;
  at::Tensor q, k, v;
};

template <typename Function>
void for_type(at::ScalarType type, const Function& function) {
  if (type == at::kBFloat16) function(at::BFloat16());
  else if (type == at::kHalf) function(at::Half());
  else function(float());
}

/// Attention that computes all scores, used if no kernel can do without them: in float32 for narrower types, whose
/// weights would be rounded with the scores.
class AllScores {
 public:
  AllScores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask, bool causal,
            double scale)
      : type_(q.scalar_type()),
        scale_(scale),
        shared_(heads_per_key(q, k)),
        q_(widened(q)),
        k_(for_all_heads(widened(k), shared_)),
        v_(for_all_heads(widened(v), shared_)) {
    // Scaled first: products of 16-bit values could overflow.
    scores_ = at::matmul(q_.mul(scale), k_.mT());
    if (mask.defined()) scores_ = scores_.add(widened(mask));
    if (!causal) return;
    const at::Tensor later = at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool)).triu(1);
    scores_ = scores_.masked_fill(later, -std::numeric_limits<double>::infinity());
  }

  std::tuple<at::Tensor, at::Tensor> result() const {
    at::Tensor rows = at::logsumexp(scores_, -1);
    return {at::matmul(weights(rows), v_).to(type_), rows};
  }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients(const at::Tensor& gradient, const at::Tensor& result,
                                                           const at::Tensor& rows) const {
    const at::Tensor weights_of_rows = weights(rows), of_result = widened(gradient);
    const at::Tensor of_scores = scores_gradient(of_result, widened(result), weights_of_rows).mul(scale_);
    return {at::matmul(of_scores, k_).to(type_), sum_of_heads(at::matmul(of_scores.mT(), q_), shared_).to(type_),
            sum_of_heads(at::matmul(weights_of_rows.mT(), of_result), shared_).to(type_)};
  }
  at::Tensor mask_gradient(const at::Tensor& gradient, const at::Tensor& result, const at::Tensor& rows) const {
    return scores_gradient(widened(gradient), widened(result), weights(rows)).to(type_);
  }

 private:
  at::Tensor widened(const at::Tensor& tensor) const { return tensor.to(at::toOpMathType(type_)); }

  /// The weights of the scores. The rows' logarithms tell which rows are fully masked, and have no weights; they cannot
  /// be used for more, since a mask that adds a large number to a whole row makes them lose the sum to rounding.
  at::Tensor weights(const at::Tensor& rows) const {
    const at::Tensor hidden = rows.isneginf().unsqueeze(-1);
    return scores_.masked_fill(hidden, 0).softmax(-1).masked_fill(hidden, 0);
  }
  at::Tensor scores_gradient(const at::Tensor& gradient, const at::Tensor& result, const at::Tensor& weights) const {
    const at::Tensor inner = gradient.mul(result).sum(-1, /*keepdim=*/true);
    return weights.mul(at::matmul(gradient, v_.mT()).sub(inner));
  }

  at::ScalarType type_;
  double scale_;
  int64_t shared_;
  at::Tensor q_, k_, v_, scores_;
};

/// What gradients read, with dense rows; the row logarithms and the mask, contiguous and expanded.
struct GradientOperands {
  at::Tensor gradient, q, k, v, result, logarithms, mask;
};
GradientOperands gradient_operands(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& result, const at::Tensor& rows,
                                   const at::Tensor& mask) {
  return {with_dense_rows(gradient), with_dense_rows(q), with_dense_rows(k),       with_dense_rows(v),
          with_dense_rows(result),   rows.contiguous(),  expanded_mask(mask, q, k)};
}

/// Head `index` of q with head `of_key` of k and v, without places for results.
template <typename T>
HeadGradient<T> gradient_of_head(const GradientOperands& of, int64_t index, int64_t of_key) {
  return {.gradient = head_of<const T>(of.gradient, index),
          .q = head_of<const T>(of.q, index),
          .k = head_of<const T>(of.k, of_key),
          .v = head_of<const T>(of.v, of_key),
          .result = head_of<const T>(of.result, index),
          .logarithms = of.logarithms.const_data_ptr<float>() + index * of.q.size(-2),
          .mask = mask_of<T>(of.mask, index),
          .of_q = {},
          .of_k = {},
          .of_v = {}};
}

/// The heads of q that each matrix of a mask is added to, in order. `expanded` has the leading axes of q.
std::vector<std::vector<int64_t>> heads_of_matrices(const at::Tensor& expanded, const at::Tensor& sums) {
  std::vector<std::vector<int64_t>> heads(static_cast<size_t>(heads_of(sums)));
  const int64_t of_matrix = sums.size(-2) * sums.size(-1), count = heads_of(expanded);
  for (int64_t index = 0; index < count; ++index) {
    const int64_t offset = head_of<const float>(expanded, index).data - sums.const_data_ptr<float>();
    heads[static_cast<size_t>(offset / of_matrix)].push_back(index);
  }
  return heads;
}

/// Zeros [.., Q, K] with the leading axes of the mask, as many as q has.
at::Tensor zeros_of_mask(const at::Tensor& mask, const at::Tensor& q, const at::Tensor& k) {
  std::vector<int64_t> sizes(static_cast<size_t>(q.dim() - mask.dim()), 1);
  sizes.insert(sizes.end(), mask.sizes().begin(), mask.sizes().end());
  sizes[sizes.size() - 2] = q.size(-2), sizes.back() = k.size(-2);
  return at::zeros(sizes, q.options().dtype(at::kFloat));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const at::Tensor& mask, bool causal, double scale) {
  if (is_recorded(q) || is_recorded(k) || is_recorded(v) || is_recorded(mask))
    return AllScores(q, k, v, mask, causal, scale).result();
  if (q.is_cuda() && !mask.defined()) {
    const GpuOperands of(q, k, v);
    if (const GpuAttention kernel = gpu_attention_kernel(of.q, of.k, of.v, mask, causal, scale);
        kernel != GpuAttention::kNone) {
      const auto [result, rows] = gpu_attention(kernel, of.q, of.k, of.v, causal, scale);
      return {result.reshape(q.sizes()), rows.reshape(q.sizes().slice(0, q.dim() - 1))};
    }
  }
  if (!loops_take(q)) return AllScores(q, k, v, mask, causal, scale).result();
  const at::Tensor queries = with_dense_rows(q), keys = with_dense_rows(k), values = with_dense_rows(v);
  const at::Tensor added = expanded_mask(mask, q, k), result = empty_heads_like(q);
  at::Tensor rows = at::empty(q.sizes().slice(0, q.dim() - 1), q.options().dtype(at::kFloat));
  const HeadSizes sizes = sizes_of(queries, keys, causal, scale);
  for_type(q.scalar_type(), [&]<typename T>(T) {
    const auto head = [&](int64_t index, int64_t of_key) {
      return Head<T>{.q = head_of<const T>(queries, index),
                     .k = head_of<const T>(keys, of_key),
                     .v = head_of<const T>(values, of_key),
                     .mask = mask_of<T>(added, index),
                     .result = head_of<T>(result, index),
                     .logarithms = rows.mutable_data_ptr<float>() + index * sizes.rows};
    };
    for_heads(queries, keys, heads_at_once(queries, keys), attention_scratch(sizes), head,
              [&](std::span<const Head<T>> heads, float* scratch) { attend_heads(sizes, heads, scratch); });
  });
  return {result, rows};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_gradient(const at::Tensor& gradient, const at::Tensor& q,
                                                                  const at::Tensor& k, const at::Tensor& v,
                                                                  const at::Tensor& result, const at::Tensor& rows,
                                                                  const at::Tensor& mask, bool causal, double scale) {
  if (q.is_cuda() && !mask.defined()) {
    const GpuOperands of(q, k, v);
    if (const GpuAttention kernel = gpu_attention_kernel(of.q, of.k, of.v, mask, causal, scale);
        kernel != GpuAttention::kNone) {
      const auto [of_q, of_k, of_v] =
          gpu_attention_gradient(kernel, with_two_axes(gradient), of.q, of.k, of.v, with_two_axes(result),
                                 rows.reshape(of.q.sizes().slice(0, 3)), causal, scale);
      return {of_q.reshape(q.sizes()), sum_of_heads(of_k, of.shared).reshape(k.sizes()),
              sum_of_heads(of_v, of.shared).reshape(v.sizes())};
    }
  }
  if (!loops_take(q)) return AllScores(q, k, v, mask, causal, scale).gradients(gradient, result, rows);
  const at::Tensor of_q = empty_heads_like(q), of_k = empty_heads_like(k), of_v = empty_heads_like(v);
  const GradientOperands of = gradient_operands(gradient, q, k, v, result, rows, mask);
  const HeadSizes sizes = sizes_of(q, k, causal, scale);
  for_type(q.scalar_type(), [&]<typename T>(T) {
    const auto head = [&](int64_t index, int64_t of_key) {
      HeadGradient<T> made = gradient_of_head<T>(of, index, of_key);
      made.of_q = head_of<T>(of_q, index);
      made.of_k = head_of<T>(of_k, of_key), made.of_v = head_of<T>(of_v, of_key);
      return made;
    };
    for_heads(
        q, k, heads_per_key(q, k), attention_gradient_scratch(sizes), head,
        [&](std::span<const HeadGradient<T>> heads, float* scratch) { differentiate_heads(sizes, heads, scratch); });
  });
  return {of_q, of_k, of_v};
}

at::Tensor attention_mask_gradient(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& result, const at::Tensor& rows,
                                   const at::Tensor& mask, bool causal, double scale) {
  if (!loops_take(q))
    return AllScores(q, k, v, mask, causal, scale).mask_gradient(gradient, result, rows).sum_to_size(mask.sizes());
  const GradientOperands of = gradient_operands(gradient, q, k, v, result, rows, mask);
  const HeadSizes sizes = sizes_of(q, k, causal, scale);
  const at::Tensor sums = zeros_of_mask(mask, q, k), expanded = sums.expand_as(of.mask);
  const std::vector<std::vector<int64_t>> heads = heads_of_matrices(expanded, sums);
  const int64_t shared = heads_per_key(q, k), blocks = (sizes.rows + kRowsAtOnce - 1) / kRowsAtOnce;
  for_type(q.scalar_type(), [&]<typename T>(T) {
    // A block of a matrix is summed by one thread, in the order of heads, so that bits do not depend on the number of
    // threads.
    at::parallel_for(0, heads_of(sums) * blocks, /*grain_size=*/1, [&](int64_t begin, int64_t end) {
      at::Tensor scratch = at::empty({attention_mask_gradient_scratch(sizes)}, sums.options());
      for (int64_t block = begin; block < end; ++block)
        for (const int64_t index : heads[static_cast<size_t>(block / blocks)])
          differentiate_mask(sizes, gradient_of_head<T>(of, index, index / shared), block % blocks * kRowsAtOnce,
                             head_of<float>(sums, block / blocks), scratch.mutable_data_ptr<float>());
    });
  });
  const bool has_all = sums.numel() == mask.numel();
  return (has_all ? sums.view(mask.sizes()) : sums.sum_to_size(mask.sizes())).to(mask.scalar_type());
}

}  // namespace graphpipe::runtime
