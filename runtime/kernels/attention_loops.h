#pragma once
// Attention of heads on a CPU (attention.h): products of blocks of rows and a softmax of whole rows, compiled for
// each instruction set. LibTorch's flash kernels call a library for every small product, which takes two to ten times
// as long at sizes of 64 to 512 rows (docs/performance.md, Kernels).

#include <cstdint>
#include <span>

#include "runtime/kernels/vector_loops.h"

namespace graphpipe::runtime {

/// Rows of a head; the elements of a row are contiguous.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;
};

/// The mask that is added to the scores; none if `data` is null.
template <typename T>
struct Mask {
  const T* data;
  int64_t row, column;
};

/// Rows of scores that are computed at a time.
inline constexpr int64_t kRowsAtOnce = 64;

struct HeadSizes {
  int64_t rows, columns, width;
  float scale;
  /// Row i sees columns up to i.
  bool causal;
  int64_t rows_at_once() const { return rows < kRowsAtOnce ? rows : kRowsAtOnce; }
};

/// q, k, v; the result, and the logarithms of the rows' sums of exponentials.
template <typename T>
struct Head {
  Rows<const T> q, k, v;
  Mask<T> mask;
  Rows<T> result;
  float* logarithms;
};

template <typename T>
struct HeadGradient {
  Rows<const T> gradient, q, k, v, result;
  const float* logarithms;
  Mask<T> mask;
  Rows<T> of_q, of_k, of_v;
};

/// Floats that a call needs in addition to its operands.
int64_t attention_scratch(const HeadSizes& sizes);
int64_t attention_gradient_scratch(const HeadSizes& sizes);
int64_t attention_mask_gradient_scratch(const HeadSizes& sizes);

/// Heads that share k and v, whose gradients are sums over them. For T = float, c10::BFloat16 and c10::Half; sums are
/// float32. Needs: at least one head; the processor supports the level.
template <typename T>
void attend_heads(const HeadSizes& sizes, std::span<const Head<T>> heads, float* scratch,
                  VectorLevel level = vector_level());
template <typename T>
void differentiate_heads(const HeadSizes& sizes, std::span<const HeadGradient<T>> heads, float* scratch,
                         VectorLevel level = vector_level());
/// Adds the gradient of kRowsAtOnce rows of the head's scores, from `first` on, to those of its mask [Q, K], of which
/// several heads may have one.
template <typename T>
void differentiate_mask(const HeadSizes& sizes, const HeadGradient<T>& head, int64_t first, Rows<float> of_mask,
                        float* scratch, VectorLevel level = vector_level());

}  // namespace graphpipe::runtime
