#include "runtime/kernels/attention_loops.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <limits>

#include "runtime/kernels/vector_loops.h"
#include "runtime/kernels/vectors.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math,no-math-errno,fp-contract=fast")
#endif

namespace graphpipe::runtime {
namespace {

/// Floats per vector: as many as the widest registers hold; several narrower ones hold as many.
constexpr int64_t kLanes = 16;
constexpr float kNothing = -std::numeric_limits<float>::infinity(), kLowest = std::numeric_limits<float>::lowest();
/// Below this exponent, e^x is subnormal.
constexpr float kMinPower = -87.0F;

template <typename T>
struct IsFloat {
  static constexpr bool value = false;
};
template <>
struct IsFloat<const float> {
  static constexpr bool value = true;
};

// LibTorch's own conversions are functions that cannot be inlined into loops compiled for another instruction set.
GRAPHPIPE_INLINE float as_float(float x) { return x; }
GRAPHPIPE_INLINE float as_float(c10::BFloat16 x) { return __builtin_bit_cast(float, uint32_t{x.x} << 16U); }
GRAPHPIPE_INLINE float as_float(c10::Half x) { return static_cast<float>(x); }

template <typename T>
GRAPHPIPE_INLINE T of_float(float x) {
  return static_cast<T>(x);
}
/// Rounds to nearest, ties to even.
template <>
GRAPHPIPE_INLINE c10::BFloat16 of_float<c10::BFloat16>(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x), even = bits >> 16U & 1U;
  const uint32_t rounded = x != x ? 0x7FC00000U : bits + 0x7FFFU + even;
  return {static_cast<uint16_t>(rounded >> 16U), c10::BFloat16::from_bits()};
}

int64_t padded(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

#define GRAPHPIPE_TILE_ROWS 1
#define GRAPHPIPE_TILE_VECTORS 2
#define GRAPHPIPE_REGISTER_LANES 4
namespace any_processor {
#include "runtime/kernels/attention_heads.inc"
}
#undef GRAPHPIPE_TILE_ROWS
#undef GRAPHPIPE_TILE_VECTORS
#undef GRAPHPIPE_REGISTER_LANES

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define GRAPHPIPE_HAS_LEVELS

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define GRAPHPIPE_TILE_ROWS 6
#define GRAPHPIPE_TILE_VECTORS 1
#define GRAPHPIPE_REGISTER_LANES 8
namespace with_avx2 {
#include "runtime/kernels/attention_heads.inc"
}
#undef GRAPHPIPE_TILE_ROWS
#undef GRAPHPIPE_TILE_VECTORS
#undef GRAPHPIPE_REGISTER_LANES
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")
#define GRAPHPIPE_TILE_ROWS 6
#define GRAPHPIPE_TILE_VECTORS 4
#define GRAPHPIPE_REGISTER_LANES 16
namespace with_avx512 {
#include "runtime/kernels/attention_heads.inc"
}
#undef GRAPHPIPE_TILE_ROWS
#undef GRAPHPIPE_TILE_VECTORS
#undef GRAPHPIPE_REGISTER_LANES
#pragma GCC pop_options
#endif

}  // namespace

int64_t attention_scratch(const HeadSizes& sizes) {
  const int64_t stride = padded(sizes.columns), width = padded(sizes.width);
  return sizes.width * stride + sizes.columns * width + sizes.rows_at_once() * (stride + 2 * width);
}

int64_t attention_gradient_scratch(const HeadSizes& sizes) {
  const int64_t stride = padded(sizes.columns), width = padded(sizes.width);
  return 2 * sizes.width * stride + 3 * sizes.columns * width + sizes.rows_at_once() * (2 * stride + 3 * width);
}

int64_t attention_mask_gradient_scratch(const HeadSizes& sizes) {
  const int64_t stride = padded(sizes.columns), width = padded(sizes.width);
  return 2 * sizes.width * stride + sizes.rows_at_once() * (2 * stride + 2 * width);
}

template <typename T>
void attend_heads(const HeadSizes& sizes, std::span<const Head<T>> heads, float* scratch,
                  [[maybe_unused]] VectorLevel level) {
#if defined(GRAPHPIPE_HAS_LEVELS)
  if (level == VectorLevel::kAvx512) return with_avx512::attend(sizes, heads, scratch);
  if (level == VectorLevel::kAvx2) return with_avx2::attend(sizes, heads, scratch);
#endif
  any_processor::attend(sizes, heads, scratch);
}

template <typename T>
void differentiate_heads(const HeadSizes& sizes, std::span<const HeadGradient<T>> heads, float* scratch,
                         [[maybe_unused]] VectorLevel level) {
#if defined(GRAPHPIPE_HAS_LEVELS)
  if (level == VectorLevel::kAvx512) return with_avx512::attend_backwards(sizes, heads, scratch);
  if (level == VectorLevel::kAvx2) return with_avx2::attend_backwards(sizes, heads, scratch);
#endif
  any_processor::attend_backwards(sizes, heads, scratch);
}

template <typename T>
void differentiate_mask(const HeadSizes& sizes, const HeadGradient<T>& head, int64_t first, Rows<float> of_mask,
                        float* scratch, [[maybe_unused]] VectorLevel level) {
#if defined(GRAPHPIPE_HAS_LEVELS)
  if (level == VectorLevel::kAvx512) return with_avx512::attend_backwards_to_mask(sizes, head, first, of_mask, scratch);
  if (level == VectorLevel::kAvx2) return with_avx2::attend_backwards_to_mask(sizes, head, first, of_mask, scratch);
#endif
  any_processor::attend_backwards_to_mask(sizes, head, first, of_mask, scratch);
}

#define GRAPHPIPE_ATTENTION_OF(T)                                                                                \
  template void attend_heads<T>(const HeadSizes&, std::span<const Head<T>>, float*, VectorLevel);                \
  template void differentiate_heads<T>(const HeadSizes&, std::span<const HeadGradient<T>>, float*, VectorLevel); \
  template void differentiate_mask<T>(const HeadSizes&, const HeadGradient<T>&, int64_t, Rows<float>, float*,    \
                                      VectorLevel);
GRAPHPIPE_ATTENTION_OF(float)
GRAPHPIPE_ATTENTION_OF(c10::BFloat16)
GRAPHPIPE_ATTENTION_OF(c10::Half)
#undef GRAPHPIPE_ATTENTION_OF

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
