#include "runtime/kernels/relu.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/threshold_backward.h>

#include <cstdint>

#include "runtime/kernels/vector_loops.h"

// The loops are written so that the compiler vectorises them, whatever instruction set the rest is compiled for.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math")
#define GRAPHPIPE_SAME_PLACE _Pragma("GCC ivdep")
#else
#define GRAPHPIPE_SAME_PLACE _Pragma("clang loop vectorize(assume_safety)")
#endif

namespace graphpipe::runtime {
namespace {

/// The result may lie where x does. NaN stays.
GRAPHPIPE_INLINE void rectify(const float* x, float* result, int64_t count) {
  GRAPHPIPE_SAME_PLACE
  for (int64_t i = 0; i < count; ++i) result[i] = x[i] <= 0 ? 0 : x[i];
}

/// The gradient of x may lie where that of the result does.
GRAPHPIPE_INLINE void pass_where_positive(const float* gradient, const float* result, float* of_x, int64_t count) {
  GRAPHPIPE_SAME_PLACE
  for (int64_t i = 0; i < count; ++i) of_x[i] = result[i] <= 0 ? 0 : gradient[i];
}

#if defined(__x86_64__)
GRAPHPIPE_AVX2 void rectify_avx2(const float* x, float* result, int64_t count) { rectify(x, result, count); }
GRAPHPIPE_AVX2 void pass_where_positive_avx2(const float* gradient, const float* result, float* of_x, int64_t count) {
  pass_where_positive(gradient, result, of_x, count);
}
#endif

void rectify_some(const float* x, float* result, int64_t count) {
#if defined(__x86_64__)
  if (has_avx2()) return rectify_avx2(x, result, count);
#endif
  rectify(x, result, count);
}

void pass_some(const float* gradient, const float* result, float* of_x, int64_t count) {
#if defined(__x86_64__)
  if (has_avx2()) return pass_where_positive_avx2(gradient, result, of_x, count);
#endif
  pass_where_positive(gradient, result, of_x, count);
}

}  // namespace
}  // namespace graphpipe::runtime

#undef GRAPHPIPE_SAME_PLACE
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace graphpipe::runtime {
namespace {

void rectify_all(const at::Tensor& x, const at::Tensor& result) {
  const float* in = x.const_data_ptr<float>();
  float* out = result.mutable_data_ptr<float>();
  for_parts(x.numel(), kElementsPerThread,
            [&](int64_t begin, int64_t end) { rectify_some(in + begin, out + begin, end - begin); });
}

void pass_all(const at::Tensor& gradient, const at::Tensor& result, const at::Tensor& of_x) {
  const float* from = gradient.const_data_ptr<float>();
  const float* made = result.const_data_ptr<float>();
  float* out = of_x.mutable_data_ptr<float>();
  for_parts(result.numel(), kElementsPerThread,
            [&](int64_t begin, int64_t end) { pass_some(from + begin, made + begin, out + begin, end - begin); });
}

/// LibTorch lays its gradient out like `result`; what takes the place of the gradient is laid out like that.
at::Tensor laid_out_like(const at::Tensor& gradient, const at::Tensor& result) {
  return result.strides() == gradient.strides() ? result : at::empty_like(gradient).copy_(result);
}

}  // namespace

at::Tensor relu(const at::Tensor& x) {
  if (!loop_takes(x)) return at::relu(x);
  at::Tensor result = new_floats(x.sizes());
  rectify_all(x, result);
  return result;
}

at::Tensor relu_gradient(const at::Tensor& gradient, const at::Tensor& result) {
  if (!loop_takes(gradient) || !loop_takes(result))
    return at::threshold_backward(gradient, laid_out_like(gradient, result), 0);
  at::Tensor of_x = new_floats(result.sizes());
  pass_all(gradient, result, of_x);
  return of_x;
}

at::Tensor relu_(const at::Tensor& x) {
  if (loop_takes(x)) {
    rectify_all(x, x);
    return x;
  }
  at::Tensor place = x;
  return at::relu_(place);
}

at::Tensor relu_gradient_(const at::Tensor& gradient, const at::Tensor& result) {
  if (loop_takes(gradient) && loop_takes(result)) {
    pass_all(gradient, result, gradient);
    return gradient;
  }
  at::Tensor place = gradient;
  return at::threshold_backward_out(place, gradient, result, 0);
}

}  // namespace graphpipe::runtime
