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
#include "runtime/kernels/bfloats.h"
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

/// x and its gradient, if that is given, and numbers for each channel. A single element has no variance: that case is
/// left to LibTorch, unless other replicas have more.
bool loops_take(const at::Tensor& x, const at::Tensor& gradient, std::initializer_list<const at::Tensor*> numbers,
                bool has_replicas) {
  const bool has_more = has_replicas || channel_shape(x).count() > 1;
  const bool are_floats = loop_takes(x) && (!gradient.defined() || loop_takes(gradient));
  return (are_floats || (are_bfloats(x) && (!gradient.defined() || are_bfloats(gradient)))) && has_more &&
         std::ranges::all_of(numbers, [](const at::Tensor* each) { return loop_takes(*each); });
}

/// The elements as the loops have them; null where the tensor is not defined.
template <typename Element>
const Element* read(const at::Tensor& tensor) {
  return static_cast<const Element*>(tensor.defined() ? tensor.const_data_ptr() : nullptr);
}
template <typename Element>
Element* written(const at::Tensor& tensor) {
  return static_cast<Element*>(tensor.defined() ? tensor.mutable_data_ptr() : nullptr);
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

template <typename Element>
void normalize_alone(const BatchNormForward<Element>& f) {
  const BatchNormLoops<Element>& loops = batch_norm_loops<Element>();
  for_channels(f.shape, [&](Channels channels) {
    loops.measure(f, channels);
    loops.normalize(f, channels, static_cast<double>(f.shape.count()));
  });
}

void follow(const at::Tensor& running, const at::Tensor& statistic, double take) {
  if (running.defined()) running.mul_(1 - take).add_(statistic, take);
}

/// Normalises by what all replicas have measured. Returns their count.
template <typename Element>
int64_t normalize_with_replicas(const BatchNormForward<Element>& f, ReplicaExchange& replicas) {
  const BatchNormLoops<Element>& loops = batch_norm_loops<Element>();
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

template <typename Element>
void gradients_with_replicas(const BatchNormBackward<Element>& b, ReplicaExchange& replicas) {
  const BatchNormLoops<Element>& loops = batch_norm_loops<Element>();
  const auto channels = static_cast<size_t>(b.shape.channels);
  for_channels(b.shape, [&](Channels some) { loops.sum_gradients(b, some); });
  if (b.of_x == nullptr) return;
  const ChannelSums all = of_all_replicas(
      ChannelSums{b.shape.count(), {b.sums, b.sums + channels}, {b.products, b.products + channels}}, replicas);
  std::ranges::copy(all.first, b.sums);
  std::ranges::copy(all.second, b.products);
  for_channels(b.shape, [&](Channels some) { loops.gradient_of_x(b, some, static_cast<double>(all.count)); });
}

template <typename Element>
void gradients_alone(const BatchNormBackward<Element>& b) {
  const BatchNormLoops<Element>& loops = batch_norm_loops<Element>();
  for_channels(b.shape, [&](Channels channels) {
    loops.sum_gradients(b, channels);
    if (b.of_x != nullptr) loops.gradient_of_x(b, channels, static_cast<double>(b.shape.count()));
  });
}

/// Of x: by the loops.
struct Normalized {
  at::Tensor result, mean, inverse, squares;
  int64_t count = 0;  // of the values that each of these comes from
};

template <typename Element>
void normalize(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& bias, double epsilon,
               ReplicaExchange* replicas, Normalized& made) {
  const BatchNormForward<Element> forward{.shape = channel_shape(x),
                                          .x = read<Element>(x),
                                          .result = written<Element>(made.result),
                                          .scale = read<float>(scale),
                                          .bias = read<float>(bias),
                                          .mean = written<float>(made.mean),
                                          .inverse_deviation = written<float>(made.inverse),
                                          .squares = written<double>(made.squares),
                                          .epsilon = epsilon};
  made.count = forward.shape.count();
  if (replicas != nullptr) made.count = normalize_with_replicas(forward, *replicas);
  else normalize_alone(forward);
}

/// Undefined gradients are not wanted.
template <typename Element>
void differentiate(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& scale, const at::Tensor& mean,
                   const at::Tensor& inverse_deviation, ReplicaExchange* replicas,
                   const std::array<at::Tensor, 3>& gradients) {
  std::vector<double> sums(2 * static_cast<size_t>(scale.numel()));
  const BatchNormBackward<Element> backward{.shape = channel_shape(x),
                                            .gradient = read<Element>(gradient),
                                            .x = read<Element>(x),
                                            .scale = read<float>(scale),
                                            .mean = read<float>(mean),
                                            .inverse_deviation = read<float>(inverse_deviation),
                                            .sums = sums.data(),
                                            .products = sums.data() + scale.numel(),
                                            .of_x = written<Element>(gradients[0]),
                                            .of_scale = written<float>(gradients[1]),
                                            .of_bias = written<float>(gradients[2])};
  if (replicas != nullptr) gradients_with_replicas(backward, *replicas);
  else gradients_alone(backward);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(const at::Tensor& x, const at::Tensor& scale,
                                                          const at::Tensor& bias, const at::Tensor& running_mean,
                                                          const at::Tensor& running_variance, double take,
                                                          double epsilon, ReplicaExchange* replicas) {
  if (!loops_take(x, {}, {&scale, &bias}, replicas != nullptr))
    return replicas != nullptr
               ? batch_norm_of_replicas(x, scale, bias, running_mean, running_variance, take, epsilon, *replicas)
               : at::native_batch_norm(x, scale, bias, running_mean, running_variance, /*training=*/true, take,
                                       epsilon);
  Normalized made{.result = at::empty_like(x),
                  .mean = at::empty_like(scale),
                  .inverse = at::empty_like(scale),
                  .squares = at::empty(scale.sizes(), scale.options().dtype(at::kDouble))};
  if (are_bfloats(x)) normalize<uint16_t>(x, scale, bias, epsilon, replicas, made);
  else normalize<float>(x, scale, bias, epsilon, replicas, made);
  follow(running_mean, made.mean, take);
  follow(running_variance, made.squares.div(static_cast<double>(made.count) - 1).to(at::kFloat), take);
  return {made.result, made.mean, made.inverse};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                                   const at::Tensor& scale, const at::Tensor& mean,
                                                                   const at::Tensor& inverse_deviation, double epsilon,
                                                                   std::array<bool, 3> wants,
                                                                   ReplicaExchange* replicas) {
  if (!loops_take(x, gradient, {&scale, &mean, &inverse_deviation}, replicas != nullptr))
    return replicas != nullptr
               ? batch_norm_gradients_of_replicas(gradient, x, scale, mean, inverse_deviation, wants, *replicas)
               : at::native_batch_norm_backward(gradient, x, scale, {}, {}, mean, inverse_deviation, /*train=*/true,
                                                epsilon, wants);
  std::array<at::Tensor, 3> gradients;
  if (wants[0]) gradients[0] = at::empty_like(x);
  for (size_t i = 1; i < 3; ++i)
    if (wants[i]) gradients[i] = at::empty_like(scale);
  if (are_bfloats(x)) differentiate<uint16_t>(gradient, x, scale, mean, inverse_deviation, replicas, gradients);
  else differentiate<float>(gradient, x, scale, mean, inverse_deviation, replicas, gradients);
  return {gradients[0], gradients[1], gradients[2]};
}

}  // namespace graphpipe::runtime
