#include "runtime/kernels/rms_norm.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/kernels/vector_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math,no-math-errno")
#endif

namespace graphpipe::runtime {
namespace {

GRAPHPIPE_INLINE float normalize_row(const float* __restrict x, const float* __restrict scale, float* __restrict result,
                                     int64_t width, double epsilon) {
  RowLanes squares;
  int64_t i = 0;
  for (; i + kRowLanes <= width; i += kRowLanes)
    for (int64_t lane = 0; lane < kRowLanes; ++lane) squares.of[lane] += x[i + lane] * x[i + lane];
  float sum = squares.sum();
  for (; i < width; ++i) sum += x[i] * x[i];
  const float inverse =
      static_cast<float>(1 / std::sqrt(static_cast<double>(sum) / static_cast<double>(width) + epsilon));
  for (i = 0; i < width; ++i) result[i] = x[i] * inverse * scale[i];
  return inverse;
}

/// With r = 1 / rms and g = gradient * scale: r g - x r^3 mean(g x).
GRAPHPIPE_INLINE void row_gradient(const float* __restrict gradient, const float* __restrict x,
                                   const float* __restrict scale, float inverse, float* __restrict result,
                                   int64_t width) {
  RowLanes products;
  int64_t i = 0;
  for (; i + kRowLanes <= width; i += kRowLanes)
    for (int64_t lane = 0; lane < kRowLanes; ++lane)
      products.of[lane] += gradient[i + lane] * scale[i + lane] * x[i + lane];
  float sum = products.sum();
  for (; i < width; ++i) sum += gradient[i] * scale[i] * x[i];
  const float factor = inverse * inverse * inverse * sum / static_cast<float>(width);
  for (i = 0; i < width; ++i) result[i] = inverse * gradient[i] * scale[i] - x[i] * factor;
}

#if defined(__x86_64__)
GRAPHPIPE_AVX2 float normalize_row_avx2(const float* x, const float* scale, float* result, int64_t width,
                                        double epsilon) {
  return normalize_row(x, scale, result, width, epsilon);
}
GRAPHPIPE_AVX2 void row_gradient_avx2(const float* gradient, const float* x, const float* scale, float inverse,
                                      float* result, int64_t width) {
  row_gradient(gradient, x, scale, inverse, result, width);
}
#endif

float normalize_one(const float* x, const float* scale, float* result, int64_t width, double epsilon) {
#if defined(__x86_64__)
  if (has_avx2()) return normalize_row_avx2(x, scale, result, width, epsilon);
#endif
  return normalize_row(x, scale, result, width, epsilon);
}

void gradient_of_one(const float* gradient, const float* x, const float* scale, float inverse, float* result,
                     int64_t width) {
#if defined(__x86_64__)
  if (has_avx2()) return row_gradient_avx2(gradient, x, scale, inverse, result, width);
#endif
  row_gradient(gradient, x, scale, inverse, result, width);
}

}  // namespace
}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace graphpipe::runtime {
namespace {

std::vector<int64_t> last_axes(int64_t count) {
  std::vector<int64_t> axes(static_cast<size_t>(count));
  std::iota(axes.begin(), axes.end(), -count);
  return axes;
}

int64_t rows_per_thread(int64_t width) {
  return std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(1, width));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x, const at::Tensor& scale, int64_t axes,
                                            double epsilon) {
  if (at::isReducedFloatingType(x.scalar_type())) {
    auto [result, inverse] = rms_norm(x.to(at::kFloat), scale.to(at::kFloat), axes, epsilon);
    return {result.to(x.scalar_type()), inverse};
  }
  const int64_t width = scale.numel();
  if (!loop_takes(x) || !loop_takes(scale) || width == 0) {
    at::Tensor inverse = x.square().mean(last_axes(axes), true).add(epsilon).rsqrt();
    return {x.mul(inverse).mul(scale), inverse};
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  std::fill(sizes.end() - axes, sizes.end(), 1);
  at::Tensor result = at::empty_like(x), inverse = at::empty(sizes, x.options());
  const float *in = x.const_data_ptr<float>(), *factors = scale.const_data_ptr<float>();
  float *out = result.mutable_data_ptr<float>(), *inverses = inverse.mutable_data_ptr<float>();
  at::parallel_for(0, x.numel() / width, rows_per_thread(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      inverses[row] = normalize_one(in + row * width, factors, out + row * width, width, epsilon);
  });
  return {result, inverse};
}

at::Tensor rms_norm_input_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& inverse_rms,
                                   const at::Tensor& scale) {
  if (at::isReducedFloatingType(x.scalar_type()))
    return rms_norm_input_gradient(gradient.to(at::kFloat), x.to(at::kFloat), inverse_rms, scale.to(at::kFloat))
        .to(x.scalar_type());
  const int64_t width = scale.numel();
  if (!loop_takes(gradient) || !loop_takes(x) || !loop_takes(scale) || !loop_takes(inverse_rms) || width == 0) {
    const at::Tensor normal = x.mul(inverse_rms), scaled = gradient.mul(scale);
    return scaled.sub(normal.mul(scaled.mul(normal).mean(last_axes(scale.dim()), true))).mul_(inverse_rms);
  }
  at::Tensor result = at::empty_like(x);
  const float *from = gradient.const_data_ptr<float>(), *in = x.const_data_ptr<float>(),
              *factors = scale.const_data_ptr<float>(), *inverses = inverse_rms.const_data_ptr<float>();
  float* out = result.mutable_data_ptr<float>();
  at::parallel_for(0, x.numel() / width, rows_per_thread(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      gradient_of_one(from + row * width, in + row * width, factors, inverses[row], out + row * width, width);
  });
  return result;
}

}  // namespace graphpipe::runtime
