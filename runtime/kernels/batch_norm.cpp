#include "runtime/kernels/batch_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>

#include <algorithm>
#include <cmath>

#include "runtime/kernels/vector_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math,no-math-errno")
#endif

namespace graphpipe::runtime {
namespace {

/// [N, C, ..] as seen by one channel: N lines of `width` contiguous elements each.
struct ChannelShape {
  int64_t samples = 0, channels = 0, width = 0;
  int64_t line(int64_t sample, int64_t channel) const { return (sample * channels + channel) * width; }
  int64_t count() const { return samples * width; }
};

/// A float accumulates at most this many elements: each further one would lose low bits to the running sum.
constexpr int64_t kElementsInFloat = 1024;

GRAPHPIPE_INLINE float sum_of_block(const float* __restrict x, int64_t width) {
  RowLanes sums;
  int64_t i = 0;
  for (; i + kRowLanes <= width; i += kRowLanes)
    for (int64_t lane = 0; lane < kRowLanes; ++lane) sums.of[lane] += x[i + lane];
  float sum = sums.sum();
  for (; i < width; ++i) sum += x[i];
  return sum;
}

GRAPHPIPE_INLINE double sum_of_line(const float* __restrict x, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; i += kElementsInFloat)
    sum += sum_of_block(x + i, std::min(kElementsInFloat, width - i));
  return sum;
}

/// The sum of (a - a_mean) * (x - x_mean).
GRAPHPIPE_INLINE float products_of_block(const float* __restrict a, float a_mean, const float* __restrict x,
                                         float x_mean, int64_t width) {
  RowLanes sums;
  int64_t i = 0;
  for (; i + kRowLanes <= width; i += kRowLanes)
    for (int64_t lane = 0; lane < kRowLanes; ++lane) sums.of[lane] += (a[i + lane] - a_mean) * (x[i + lane] - x_mean);
  float sum = sums.sum();
  for (; i < width; ++i) sum += (a[i] - a_mean) * (x[i] - x_mean);
  return sum;
}

GRAPHPIPE_INLINE double sum_of_products(const float* __restrict a, float a_mean, const float* __restrict x,
                                        float x_mean, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; i += kElementsInFloat)
    sum += products_of_block(a + i, a_mean, x + i, x_mean, std::min(kElementsInFloat, width - i));
  return sum;
}

struct Forward {
  ChannelShape shape;
  const float *x, *scale, *bias;
  float *result, *mean, *inverse_deviation;
  double* variance;
  double epsilon;
};

GRAPHPIPE_INLINE void normalize_channel(const Forward& f, int64_t channel) {
  const ChannelShape& shape = f.shape;
  const auto count = static_cast<double>(shape.count());
  double sum = 0, squares = 0;
  for (int64_t n = 0; n < shape.samples; ++n) sum += sum_of_line(f.x + shape.line(n, channel), shape.width);
  const auto mean = static_cast<float>(sum / count);
  for (int64_t n = 0; n < shape.samples; ++n) {
    const float* const line = f.x + shape.line(n, channel);
    squares += sum_of_products(line, mean, line, mean, shape.width);
  }
  f.variance[channel] = squares / count;
  f.mean[channel] = mean;
  f.inverse_deviation[channel] = static_cast<float>(1 / std::sqrt(squares / count + f.epsilon));
  const float factor = f.inverse_deviation[channel] * f.scale[channel], offset = f.bias[channel] - mean * factor;
  for (int64_t n = 0; n < shape.samples; ++n) {
    const float* __restrict from = f.x + shape.line(n, channel);
    float* __restrict to = f.result + shape.line(n, channel);
    for (int64_t i = 0; i < shape.width; ++i) to[i] = from[i] * factor + offset;
  }
}

struct Backward {
  ChannelShape shape;
  const float *gradient, *x, *scale, *mean, *inverse_deviation;
  float *of_x, *of_scale, *of_bias;  // null if not wanted
};

/// With r = 1 / deviation and g the gradient: scale r (g - mean(g) - (x - mean(x)) r^2 mean(g (x - mean(x)))).
GRAPHPIPE_INLINE void channel_gradient(const Backward& b, int64_t channel) {
  const ChannelShape& shape = b.shape;
  const float mean = b.mean[channel], inverse = b.inverse_deviation[channel];
  double sum = 0, products = 0;
  for (int64_t n = 0; n < shape.samples; ++n) {
    const int64_t line = shape.line(n, channel);
    sum += sum_of_line(b.gradient + line, shape.width);
    products += sum_of_products(b.gradient + line, 0.0F, b.x + line, mean, shape.width);
  }
  if (b.of_scale != nullptr) b.of_scale[channel] = static_cast<float>(products * inverse);
  if (b.of_bias != nullptr) b.of_bias[channel] = static_cast<float>(sum);
  if (b.of_x == nullptr) return;
  const auto count = static_cast<double>(shape.count());
  const auto gradient_mean = static_cast<float>(sum / count);
  const auto slope = static_cast<float>(products * inverse * inverse / count);
  const float factor = b.scale[channel] * inverse;
  for (int64_t n = 0; n < shape.samples; ++n) {
    const float* __restrict from = b.gradient + shape.line(n, channel), * __restrict x = b.x + shape.line(n, channel);
    float* __restrict to = b.of_x + shape.line(n, channel);
    for (int64_t i = 0; i < shape.width; ++i) to[i] = (from[i] - gradient_mean - (x[i] - mean) * slope) * factor;
  }
}

#if defined(__x86_64__)
GRAPHPIPE_AVX2 void normalize_channel_avx2(const Forward& f, int64_t channel) { normalize_channel(f, channel); }
GRAPHPIPE_AVX2 void channel_gradient_avx2(const Backward& b, int64_t channel) { channel_gradient(b, channel); }
#endif

void normalize_one(const Forward& f, int64_t channel) {
#if defined(__x86_64__)
  if (has_avx2()) return normalize_channel_avx2(f, channel);
#endif
  normalize_channel(f, channel);
}

void gradient_of_one(const Backward& b, int64_t channel) {
#if defined(__x86_64__)
  if (has_avx2()) return channel_gradient_avx2(b, channel);
#endif
  channel_gradient(b, channel);
}

}  // namespace
}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace graphpipe::runtime {
namespace {

ChannelShape channel_shape(const at::Tensor& x) {
  ChannelShape shape{.samples = x.size(0), .channels = x.size(1), .width = 1};
  for (int64_t axis = 2; axis < x.dim(); ++axis) shape.width *= x.size(axis);
  return shape;
}

/// A single element has no variance: that case is left to LibTorch.
bool loops_take(const at::Tensor& x, std::initializer_list<const at::Tensor*> others) {
  return loop_takes(x) && channel_shape(x).count() > 1 &&
         std::ranges::all_of(others, [](const at::Tensor* each) { return loop_takes(*each); });
}

int64_t channels_per_thread(const ChannelShape& shape) {
  return std::max<int64_t>(1, kElementsPerThread / shape.count());
}

template <typename Each>
void for_each_channel(const ChannelShape& shape, const Each& each) {
  at::parallel_for(0, shape.channels, channels_per_thread(shape), [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) each(channel);
  });
}

void follow(const at::Tensor& running, const at::Tensor& statistic, double take) {
  if (running.defined()) running.mul_(1 - take).add_(statistic, take);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(const at::Tensor& x, const at::Tensor& scale,
                                                          const at::Tensor& bias, const at::Tensor& running_mean,
                                                          const at::Tensor& running_variance, double take,
                                                          double epsilon) {
  if (!loops_take(x, {&scale, &bias}))
    return at::native_batch_norm(x, scale, bias, running_mean, running_variance, /*training=*/true, take, epsilon);
  const ChannelShape shape = channel_shape(x);
  at::Tensor result = at::empty_like(x), mean = at::empty_like(scale), inverse = at::empty_like(scale);
  const at::Tensor variance = at::empty(scale.sizes(), scale.options().dtype(at::kDouble));
  const Forward forward{.shape = shape,
                        .x = x.const_data_ptr<float>(),
                        .scale = scale.const_data_ptr<float>(),
                        .bias = bias.const_data_ptr<float>(),
                        .result = result.mutable_data_ptr<float>(),
                        .mean = mean.mutable_data_ptr<float>(),
                        .inverse_deviation = inverse.mutable_data_ptr<float>(),
                        .variance = variance.mutable_data_ptr<double>(),
                        .epsilon = epsilon};
  for_each_channel(shape, [&](int64_t channel) { normalize_one(forward, channel); });
  const auto count = static_cast<double>(shape.count());
  follow(running_mean, mean, take);
  follow(running_variance, variance.mul(count / (count - 1)).to(at::kFloat), take);
  return {result, mean, inverse};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                                   const at::Tensor& scale, const at::Tensor& mean,
                                                                   const at::Tensor& inverse_deviation, double epsilon,
                                                                   std::array<bool, 3> wants) {
  if (!loops_take(x, {&gradient, &scale, &mean, &inverse_deviation}))
    return at::native_batch_norm_backward(gradient, x, scale, {}, {}, mean, inverse_deviation, /*train=*/true, epsilon,
                                          wants);
  std::array<at::Tensor, 3> gradients;
  if (wants[0]) gradients[0] = at::empty_like(x);
  for (size_t i = 1; i < 3; ++i)
    if (wants[i]) gradients[i] = at::empty_like(scale);
  const auto place = [&](size_t i) { return wants[i] ? gradients[i].mutable_data_ptr<float>() : nullptr; };
  const Backward backward{.shape = channel_shape(x),
                          .gradient = gradient.const_data_ptr<float>(),
                          .x = x.const_data_ptr<float>(),
                          .scale = scale.const_data_ptr<float>(),
                          .mean = mean.const_data_ptr<float>(),
                          .inverse_deviation = inverse_deviation.const_data_ptr<float>(),
                          .of_x = place(0),
                          .of_scale = place(1),
                          .of_bias = place(2)};
  for_each_channel(backward.shape, [&](int64_t channel) { gradient_of_one(backward, channel); });
  return {gradients[0], gradients[1], gradients[2]};
}

}  // namespace graphpipe::runtime
