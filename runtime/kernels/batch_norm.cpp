#include "runtime/kernels/batch_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>

#include <algorithm>
#include <vector>

#include "runtime/kernels/batch_norm_loops.h"
#include "runtime/kernels/batch_norm_of_replicas.h"
#include "runtime/kernels/replica_moments.h"
#include "runtime/kernels/vector_loops.h"
#include "support/integer_math.h"

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

template <typename Each>
void for_channels(const ChannelShape& shape, const Each& each) {
  const int64_t together = channels_together(shape), blocks = ceil_div(shape.channels, together);
  const int64_t grain = std::max<int64_t>(1, kElementsPerThread / (shape.count() * together));
  at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      each(Channels{block * together, std::min(together, shape.channels - block * together)});
  });
}

void normalize_alone(const BatchNormForward& f) {
  const BatchNormLoops& loops = batch_norm_loops();
  for_channels(f.shape, [&](Channels channels) {
    loops.measure(f, channels);
    loops.normalize(f, channels, static_cast<double>(f.shape.count()));
  });
}

void follow(const at::Tensor& running, const at::Tensor& statistic, double take) {
  if (running.defined()) running.mul_(1 - take).add_(statistic, take);
}

/// Normalises by what all replicas have measured. Returns their count.
int64_t normalize_with_replicas(const BatchNormForward& f, ReplicaExchange& replicas) {
  const BatchNormLoops& loops = batch_norm_loops();
  for_channels(f.shape, [&](Channels channels) { loops.measure(f, channels); });
  const auto channels = static_cast<size_t>(f.shape.channels);
  const Moments all = of_all_replicas(
      {.count = f.shape.count(), .means = {f.mean, f.mean + channels}, .squares = {f.squares, f.squares + channels}},
      replicas);
  std::ranges::transform(all.means, f.mean, [](double mean) { return static_cast<float>(mean); });
  std::ranges::copy(all.squares, f.squares);
  for_channels(f.shape, [&](Channels some) { loops.normalize(f, some, static_cast<double>(all.count)); });
  return all.count;
}

void gradients_with_replicas(const BatchNormBackward& b, ReplicaExchange& replicas) {
  const BatchNormLoops& loops = batch_norm_loops();
  const auto channels = static_cast<size_t>(b.shape.channels);
  for_channels(b.shape, [&](Channels some) { loops.sum_gradients(b, some); });
  if (b.of_x == nullptr) return;
  const ChannelSums all = of_all_replicas(
      ChannelSums{b.shape.count(), {b.sums, b.sums + channels}, {b.products, b.products + channels}}, replicas);
  std::ranges::copy(all.first, b.sums);
  std::ranges::copy(all.second, b.products);
  for_channels(b.shape, [&](Channels some) { loops.gradient_of_x(b, some, static_cast<double>(all.count)); });
}

void gradients_alone(const BatchNormBackward& b) {
  const BatchNormLoops& loops = batch_norm_loops();
  for_channels(b.shape, [&](Channels channels) {
    loops.sum_gradients(b, channels);
    if (b.of_x != nullptr) loops.gradient_of_x(b, channels, static_cast<double>(b.shape.count()));
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
  const BatchNormForward forward{.shape = shape,
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
  else normalize_alone(forward);
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
  std::vector<double> sums(2 * static_cast<size_t>(scale.numel()));
  const auto place = [&](size_t i) { return wants[i] ? gradients[i].mutable_data_ptr<float>() : nullptr; };
  const BatchNormBackward backward{.shape = channel_shape(x),
                                   .gradient = gradient.const_data_ptr<float>(),
                                   .x = x.const_data_ptr<float>(),
                                   .scale = scale.const_data_ptr<float>(),
                                   .mean = mean.const_data_ptr<float>(),
                                   .inverse_deviation = inverse_deviation.const_data_ptr<float>(),
                                   .sums = sums.data(),
                                   .products = sums.data() + scale.numel(),
                                   .of_x = place(0),
                                   .of_scale = place(1),
                                   .of_bias = place(2)};
  if (replicas != nullptr) gradients_with_replicas(backward, *replicas);
  else gradients_alone(backward);
  return {gradients[0], gradients[1], gradients[2]};
}

}  // namespace graphpipe::runtime
