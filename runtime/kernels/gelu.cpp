#include "runtime/kernels/gelu.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>

#include <cstdint>

#include "runtime/kernels/vector_loops.h"

// The loops are written so that the compiler vectorises them, whatever instruction set the rest is compiled for.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math")
#endif

namespace graphpipe::runtime {
namespace {

struct NormalValues {
  float distribution, density_times_root;  // the density times sqrt(2 pi)
};

/// Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26: within 1.5e-7. The formula gives the tail
/// directly, so there is no cancellation.
GRAPHPIPE_INLINE NormalValues normal_at(float x) {
  const float z = (x < 0 ? -x : x) * 0.707106781F;
  const float t = 1.0F / (1.0F + 0.3275911F * z);
  const float falling = exp_of(-z * z);
  float sum = 1.061405429F;
  sum = sum * t - 1.453152027F;
  sum = sum * t + 1.421413741F;
  sum = sum * t - 0.284496736F;
  sum = sum * t + 0.254829592F;
  const float tail = 0.5F * sum * t * falling;
  return {x < 0 ? tail : 1.0F - tail, falling};
}

GRAPHPIPE_INLINE void gelu_values(const float* __restrict x, float* __restrict result, int64_t count) {
  for (int64_t i = 0; i < count; ++i) result[i] = x[i] * normal_at(x[i]).distribution;
}

GRAPHPIPE_INLINE void gelu_gradients(const float* __restrict gradient, const float* __restrict x,
                                     float* __restrict result, int64_t count) {
  constexpr float kInverseRoot = 0.398942280F;  // 1 / sqrt(2 pi)
  for (int64_t i = 0; i < count; ++i) {
    const NormalValues normal = normal_at(x[i]);
    result[i] = gradient[i] * (normal.distribution + x[i] * (kInverseRoot * normal.density_times_root));
  }
}

#if defined(__x86_64__)
GRAPHPIPE_AVX2 void gelu_values_avx2(const float* x, float* result, int64_t count) { gelu_values(x, result, count); }
GRAPHPIPE_AVX2 void gelu_gradients_avx2(const float* gradient, const float* x, float* result, int64_t count) {
  gelu_gradients(gradient, x, result, count);
}
GRAPHPIPE_AVX512 void gelu_values_avx512(const float* x, float* result, int64_t count) {
  gelu_values(x, result, count);
}
GRAPHPIPE_AVX512 void gelu_gradients_avx512(const float* gradient, const float* x, float* result, int64_t count) {
  gelu_gradients(gradient, x, result, count);
}
#endif

void gelu_of_some(const float* x, float* result, int64_t count) {
#if defined(__x86_64__)
  if (has_avx512()) return gelu_values_avx512(x, result, count);
  if (has_avx2()) return gelu_values_avx2(x, result, count);
#endif
  gelu_values(x, result, count);
}

void gelu_gradient_of_some(const float* gradient, const float* x, float* result, int64_t count) {
#if defined(__x86_64__)
  if (has_avx512()) return gelu_gradients_avx512(gradient, x, result, count);
  if (has_avx2()) return gelu_gradients_avx2(gradient, x, result, count);
#endif
  gelu_gradients(gradient, x, result, count);
}

}  // namespace
}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace graphpipe::runtime {
at::Tensor gelu(const at::Tensor& x) {
  if (!loop_takes(x)) return at::gelu(x);
  at::Tensor result = new_floats(x.sizes());
  const float* in = x.const_data_ptr<float>();
  float* out = result.mutable_data_ptr<float>();
  at::parallel_for(0, x.numel(), kElementsPerThread,
                   [&](int64_t begin, int64_t end) { gelu_of_some(in + begin, out + begin, end - begin); });
  return result;
}

at::Tensor gelu_gradient(const at::Tensor& gradient, const at::Tensor& x) {
  if (!loop_takes(x) || !loop_takes(gradient)) return at::gelu_backward(gradient, x);
  at::Tensor result = new_floats(x.sizes());
  const float* from = gradient.const_data_ptr<float>();
  const float* in = x.const_data_ptr<float>();
  float* out = result.mutable_data_ptr<float>();
  at::parallel_for(0, x.numel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
    gelu_gradient_of_some(from + begin, in + begin, out + begin, end - begin);
  });
  return result;
}

}  // namespace graphpipe::runtime
