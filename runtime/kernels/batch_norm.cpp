#include "runtime/kernels/batch_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>

#include <algorithm>
#include <cmath>

#include "runtime/kernels/batch_norm_of_replicas.h"
#include "runtime/kernels/replica_moments.h"
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
  double* squares;  // of differences from the mean, summed
  double epsilon;
};

/// The channel's mean and squares.
GRAPHPIPE_INLINE void measure_channel(const Forward& f, int64_t channel) {
  const ChannelShape& shape = f.shape;
  double sum = 0, squares = 0;
  for (int64_t n = 0; n < shape.samples; ++n) sum += sum_of_line(f.x + shape.line(n, channel), shape.width);
  const auto mean = static_cast<float>(sum / static_cast<double>(shape.count()));
  for (int64_t n = 0; n < shape.samples; ++n) {
    const float* const line = f.x + shape.line(n, channel);
    squares += sum_of_products(line, mean, line, mean, shape.width);
  }
  f.squares[channel] = squares;
  f.mean[channel] = mean;
}

/// Of `count` values of the channel these are the mean and the squares.
GRAPHPIPE_INLINE void normalize_channel(const Forward& f, int64_t channel, double count) {
  const ChannelShape& shape = f.shape;
  const float mean = f.mean[channel];
  f.inverse_deviation[channel] = static_cast<float>(1 / std::sqrt(f.squares[channel] / count + f.epsilon));
  const float factor = f.inverse_deviation[channel] * f.scale[channel], offset = f.bias[channel] - mean * factor;
  for (int64_t n = 0; n < shape.samples; ++n) {
    const float* __restrict from = f.x + shape.line(n, channel);
    float* __restrict to = f.result + shape.line(n, channel);
    for (int64_t i = 0; i < shape.width; ++i) to[i] = from[i] * factor + offset;
  }
}

GRAPHPIPE_INLINE void whole_channel(const Forward& f, int64_t channel) {
  measure_channel(f, channel);
  normalize_channel(f, channel, static_cast<double>(f.shape.count()));
}

struct Backward {
  ChannelShape shape;
  const float *gradient, *x, *scale, *mean, *inverse_deviation;
  float *of_x, *of_scale, *of_bias;  // null if not wanted
};

/// Sums of the gradient, and of its products with x - mean(x).
struct GradientSums {
  double sum = 0, products = 0;
};

/// Those of the channel; its gradients of scale and bias are made of them.
GRAPHPIPE_INLINE GradientSums sum_gradients(const Backward& b, int64_t channel) {
  const ChannelShape& shape = b.shape;
  const float mean = b.mean[channel];
  GradientSums sums;
  for (int64_t n = 0; n < shape.samples; ++n) {
    const int64_t line = shape.line(n, channel);
    sums.sum += sum_of_line(b.gradient + line, shape.width);
    sums.products += sum_of_products(b.gradient + line, 0.0F, b.x + line, mean, shape.width);
  }
  if (b.of_scale != nullptr) b.of_scale[channel] = static_cast<float>(sums.products * b.inverse_deviation[channel]);
  if (b.of_bias != nullptr) b.of_bias[channel] = static_cast<float>(sums.sum);
  return sums;
}

/// With r = 1 / deviation and g the gradient: scale r (g - mean(g) - (x - mean(x)) r^2 mean(g (x - mean(x)))), for sums
/// over `count` values.
GRAPHPIPE_INLINE void gradient_of_x(const Backward& b, int64_t channel, const GradientSums& sums, double count) {
  const ChannelShape& shape = b.shape;
  const float mean = b.mean[channel], inverse = b.inverse_deviation[channel];
  const auto gradient_mean = static_cast<float>(sums.sum / count);
  const auto slope = static_cast<float>(sums.products * inverse * inverse / count);
  const float factor = b.scale[channel] * inverse;
  for (int64_t n = 0; n < shape.samples; ++n) {
    const float* __restrict from = b.gradient + shape.line(n, channel), * __restrict x = b.x + shape.line(n, channel);
    float* __restrict to = b.of_x + shape.line(n, channel);
    for (int64_t i = 0; i < shape.width; ++i) to[i] = (from[i] - gradient_mean - (x[i] - mean) * slope) * factor;
  }
}

GRAPHPIPE_INLINE void whole_gradient(const Backward& b, int64_t channel) {
  const GradientSums sums = sum_gradients(b, channel);
  if (b.of_x != nullptr) gradient_of_x(b, channel, sums, static_cast<double>(b.shape.count()));
}

/// Each loop for any processor, and for those with wider vectors.
struct ChannelLoops {
  void (*whole_channel)(const Forward&, int64_t channel);
  void (*measure)(const Forward&, int64_t channel);
  void (*normalize)(const Forward&, int64_t channel, double count);
  void (*whole_gradient)(const Backward&, int64_t channel);
  GradientSums (*sum_gradients)(const Backward&, int64_t channel);
  void (*gradient_of_x)(const Backward&, int64_t channel, const GradientSums&, double count);
};

constexpr ChannelLoops kLoops = {
    [](const Forward& f, int64_t c) { whole_channel(f, c); },
    [](const Forward& f, int64_t c) { measure_channel(f, c); },
    [](const Forward& f, int64_t c, double count) { normalize_channel(f, c, count); },
    [](const Backward& b, int64_t c) { whole_gradient(b, c); },
    [](const Backward& b, int64_t c) { return sum_gradients(b, c); },
    [](const Backward& b, int64_t c, const GradientSums& sums, double count) { gradient_of_x(b, c, sums, count); }};

#if defined(__x86_64__)
GRAPHPIPE_AVX2 void whole_channel_avx2(const Forward& f, int64_t c) { whole_channel(f, c); }
GRAPHPIPE_AVX2 void measure_avx2(const Forward& f, int64_t c) { measure_channel(f, c); }
GRAPHPIPE_AVX2 void normalize_avx2(const Forward& f, int64_t c, double count) { normalize_channel(f, c, count); }
GRAPHPIPE_AVX2 void whole_gradient_avx2(const Backward& b, int64_t c) { whole_gradient(b, c); }
GRAPHPIPE_AVX2 GradientSums sum_gradients_avx2(const Backward& b, int64_t c) { return sum_gradients(b, c); }
GRAPHPIPE_AVX2 void gradient_of_x_avx2(const Backward& b, int64_t c, const GradientSums& sums, double count) {
  gradient_of_x(b, c, sums, count);
}
constexpr ChannelLoops kWideLoops = {whole_channel_avx2,  measure_avx2,       normalize_avx2,
                                     whole_gradient_avx2, sum_gradients_avx2, gradient_of_x_avx2};
#else
constexpr ChannelLoops kWideLoops = kLoops;
#endif

const ChannelLoops& loops() { return has_avx2() ? kWideLoops : kLoops; }

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

/// A single element has no variance: that case is left to LibTorch, unless other replicas have more.
bool loops_take(const at::Tensor& x, std::initializer_list<const at::Tensor*> others, bool has_replicas) {
  return loop_takes(x) && (has_replicas || channel_shape(x).count() > 1) &&
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

/// Normalises by what all replicas have measured. Returns their count.
int64_t normalize_with_replicas(const Forward& f, ReplicaExchange& replicas) {
  for_each_channel(f.shape, [&](int64_t channel) { loops().measure(f, channel); });
  const auto channels = static_cast<size_t>(f.shape.channels);
  const Moments all = of_all_replicas(
      {.count = f.shape.count(), .means = {f.mean, f.mean + channels}, .squares = {f.squares, f.squares + channels}},
      replicas);
  std::ranges::transform(all.means, f.mean, [](double mean) { return static_cast<float>(mean); });
  std::ranges::copy(all.squares, f.squares);
  for_each_channel(f.shape, [&](int64_t channel) { loops().normalize(f, channel, static_cast<double>(all.count)); });
  return all.count;
}

void gradients_with_replicas(const Backward& b, ReplicaExchange& replicas) {
  const auto channels = static_cast<size_t>(b.shape.channels);
  ChannelSums own{b.shape.count(), std::vector<double>(channels), std::vector<double>(channels)};
  for_each_channel(b.shape, [&](int64_t channel) {
    const GradientSums sums = loops().sum_gradients(b, channel);
    own.first[static_cast<size_t>(channel)] = sums.sum;
    own.second[static_cast<size_t>(channel)] = sums.products;
  });
  if (b.of_x == nullptr) return;
  const ChannelSums all = of_all_replicas(own, replicas);
  for_each_channel(b.shape, [&](int64_t channel) {
    const auto i = static_cast<size_t>(channel);
    loops().gradient_of_x(b, channel, {all.first[i], all.second[i]}, static_cast<double>(all.count));
  });
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(const at::Tensor& x, const at::Tensor& scale,
                                                          const at::Tensor& bias, const at::Tensor& running_mean,
                                                          const at::Tensor& running_variance, double take,
                                                          double epsilon, ReplicaExchange* replicas) {
  if (!loops_take(x, {&scale, &bias}, replicas != nullptr))
    return replicas != nullptr
               ? batch_norm_of_replicas(x, scale, bias, running_mean, running_variance, take, epsilon, *replicas)
               : at::native_batch_norm(x, scale, bias, running_mean, running_variance, /*training=*/true, take,
                                       epsilon);
  const ChannelShape shape = channel_shape(x);
  at::Tensor result = at::empty_like(x), mean = at::empty_like(scale), inverse = at::empty_like(scale);
  const at::Tensor squares = at::empty(scale.sizes(), scale.options().dtype(at::kDouble));
  const Forward forward{.shape = shape,
                        .x = x.const_data_ptr<float>(),
                        .scale = scale.const_data_ptr<float>(),
                        .bias = bias.const_data_ptr<float>(),
                        .result = result.mutable_data_ptr<float>(),
                        .mean = mean.mutable_data_ptr<float>(),
                        .inverse_deviation = inverse.mutable_data_ptr<float>(),
                        .squares = squares.mutable_data_ptr<double>(),
                        .epsilon = epsilon};
  auto count = static_cast<double>(shape.count());
  if (replicas != nullptr) count = static_cast<double>(normalize_with_replicas(forward, *replicas));
  else for_each_channel(shape, [&](int64_t channel) { loops().whole_channel(forward, channel); });
  follow(running_mean, mean, take);
  follow(running_variance, squares.div(count - 1).to(at::kFloat), take);
  return {result, mean, inverse};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                                   const at::Tensor& scale, const at::Tensor& mean,
                                                                   const at::Tensor& inverse_deviation, double epsilon,
                                                                   std::array<bool, 3> wants,
                                                                   ReplicaExchange* replicas) {
  if (!loops_take(x, {&gradient, &scale, &mean, &inverse_deviation}, replicas != nullptr))
    return replicas != nullptr
               ? batch_norm_gradients_of_replicas(gradient, x, scale, mean, inverse_deviation, wants, *replicas)
               : at::native_batch_norm_backward(gradient, x, scale, {}, {}, mean, inverse_deviation, /*train=*/true,
                                                epsilon, wants);
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
  if (replicas != nullptr) gradients_with_replicas(backward, *replicas);
  else for_each_channel(backward.shape, [&](int64_t channel) { loops().whole_gradient(backward, channel); });
  return {gradients[0], gradients[1], gradients[2]};
}

}  // namespace graphpipe::runtime
