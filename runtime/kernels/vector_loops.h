#pragma once
// What the loops of this folder share. They are written so that the compiler vectorises them, both for any processor
// and for those with wider vectors, whatever flags the rest is compiled with.

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>

#define GRAPHPIPE_INLINE inline __attribute__((always_inline))

#if defined(__x86_64__)
#define GRAPHPIPE_AVX2 __attribute__((target("avx2,fma")))
#define GRAPHPIPE_AVX512 __attribute__((target("avx2,fma,avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")))
#else
#define GRAPHPIPE_AVX2  // of functions that are compiled once
#endif

namespace graphpipe::runtime {

/// The instruction sets that loops are compiled for.
enum class VectorLevel : uint8_t { kAny, kAvx2, kAvx512 };

/// The widest instruction set of this processor.
inline VectorLevel vector_level() {
#if defined(__x86_64__)
  static const VectorLevel level = [] {
    if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) return VectorLevel::kAny;
    const bool is_wide = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
                         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0;
    return is_wide ? VectorLevel::kAvx512 : VectorLevel::kAvx2;
  }();
  return level;
#else
  return VectorLevel::kAny;
#endif
}

/// Whether functions marked GRAPHPIPE_AVX2 may be called.
inline bool has_avx2() { return vector_level() != VectorLevel::kAny; }
/// Whether functions marked GRAPHPIPE_AVX512 may be called.
inline bool has_avx512() { return vector_level() == VectorLevel::kAvx512; }

/// e^x for x up to 88, within 2 ulp; below -87, where results would be subnormal, the value at -87.
GRAPHPIPE_INLINE float exp_of(float x) {
  constexpr float kRounding = 12582912.0F;  // 1.5 * 2^23: adding it rounds to whole numbers
  constexpr uint32_t kRoundingBits = 0x4B400000U;
  constexpr float kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  const float bounded = x < -87.0F ? -87.0F : x;
  const float shifted = bounded * kLog2E + kRounding;
  const float power = shifted - kRounding;
  const float rest = (bounded - power * kLn2High) - power * kLn2Low;
  // The series up to the seventh term: |rest| <= ln(2) / 2, so that the truncation error is below 2^-27.
  float sum = 1.0F / 5040;
  sum = sum * rest + 1.0F / 720;
  sum = sum * rest + 1.0F / 120;
  sum = sum * rest + 1.0F / 24;
  sum = sum * rest + 1.0F / 6;
  sum = sum * rest + 0.5F;
  sum = sum * rest + 1.0F;
  sum = sum * rest + 1.0F;
  const uint32_t exponent = __builtin_bit_cast(uint32_t, shifted) - kRoundingBits + 127U;
  return sum * __builtin_bit_cast(float, exponent << 23U);
}

/// A number of float, or of bfloat16 by its bits, and back to the nearest, ties to even.
GRAPHPIPE_INLINE float widened(float x) { return x; }
GRAPHPIPE_INLINE float widened(uint16_t bits) { return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16U); }
GRAPHPIPE_INLINE void narrow_to(float x, float& to) { to = x; }
GRAPHPIPE_INLINE void narrow_to(float x, uint16_t& to) {
  constexpr uint32_t kWithoutSign = 0x7FFFFFFF, kInfinity = 0x7F800000, kNaN = 0x7FC0, kBelowHalf = 0x7FFF;
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (bits + kBelowHalf + ((bits >> 16U) & 1U)) >> 16U;
  to = static_cast<uint16_t>((bits & kWithoutSign) > kInfinity ? kNaN : rounded);
}

inline constexpr int64_t kRowLanes = 16;

/// Separate partial results: as many as two of the widest vectors hold, so that the order of their sum does not depend
/// on the vector width.
struct RowLanes {
  float of[kRowLanes] = {};
  /// One result of all, halves with halves.
  template <typename Join>
  GRAPHPIPE_INLINE float joined(const Join& join) const {
    float joined[kRowLanes];
    for (int64_t i = 0; i < kRowLanes; ++i) joined[i] = of[i];
#pragma GCC unroll 4
    for (int64_t half = kRowLanes / 2; half > 0; half /= 2)
#pragma GCC unroll 8
      for (int64_t i = 0; i < half; ++i) joined[i] = join(joined[i], joined[i + half]);
    return joined[0];
  }
  GRAPHPIPE_INLINE float sum() const {
    return joined([](float a, float b) __attribute__((always_inline)) { return a + b; });
  }
  GRAPHPIPE_INLINE float largest() const {
    return joined([](float a, float b) __attribute__((always_inline)) { return b > a ? b : a; });
  }
};

/// Fewer elements are not worth another thread.
inline constexpr int64_t kElementsPerThread = 1 << 15;

/// at::parallel_for(0, count, grain, f), without its guards where one thread does all: they take as long as a few
/// hundred elements. Needs: `f` calls no operators.
template <typename F>
void for_parts(int64_t count, int64_t grain, const F& f) {
  if (count > grain) at::parallel_for(0, count, grain, f);
  else if (count > 0) f(0, count);
}

/// Floats on the CPU for which no gradient is recorded.
inline bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat &&
         !(at::GradMode::is_enabled() && tensor.requires_grad());
}

/// Whether a loop of this folder supports the tensor: contiguous and plain.
inline bool loop_takes(const at::Tensor& tensor) { return is_plain(tensor) && tensor.is_contiguous(); }

/// The elements of floats, or null if there are none, as of a bias that a layer lacks.
inline const float* elements_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
}

/// Floats on the CPU, not set yet: at::empty without the way through the dispatcher, which takes as long again.
inline at::Tensor new_floats(at::IntArrayRef sizes) { return at::Tensor(at::detail::empty_cpu(sizes, at::kFloat)); }

}  // namespace graphpipe::runtime
