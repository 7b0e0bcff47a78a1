#include "runtime/kernels/batch_norm_of_replicas.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sum.h>

#include <cmath>
#include <vector>

#include "runtime/kernels/replica_moments.h"

namespace graphpipe::runtime {
namespace {

int64_t count_of(const at::Tensor& x) { return x.numel() / x.size(1); }

/// A number per channel as x sees it: [C] to [C, 1, ..].
at::Tensor by_channel(const at::Tensor& numbers, const at::Tensor& x) {
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim() - 1), 1);
  sizes.front() = x.size(1);
  return numbers.view(sizes);
}

/// The sum over all axes but the channels, in float64.
at::Tensor channel_sum(const at::Tensor& x) {
  std::vector<int64_t> axes{0};
  for (int64_t axis = 2; axis < x.dim(); ++axis) axes.push_back(axis);
  return at::sum(x, axes, /*keepdim=*/false, at::kDouble);
}

std::vector<double> on_host(const at::Tensor& numbers) {
  const at::Tensor here = numbers.to(at::kCPU).contiguous();
  return {here.const_data_ptr<double>(), here.const_data_ptr<double>() + here.numel()};
}

/// Numbers of the host as a tensor like `like`.
at::Tensor as_tensor(std::vector<double>& numbers, const at::Tensor& like) {
  return at::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, at::kDouble)
      .to(like.options(), /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_of_replicas(const at::Tensor& x, const at::Tensor& scale,
                                                                      const at::Tensor& bias,
                                                                      const at::Tensor& running_mean,
                                                                      const at::Tensor& running_variance, double take,
                                                                      double epsilon, ReplicaExchange& replicas) {
  const at::Tensor own_mean = channel_sum(x).div_(count_of(x));
  const at::Tensor apart = x.to(at::kDouble).sub(by_channel(own_mean, x));
  Moments all = of_all_replicas(
      {.count = count_of(x), .means = on_host(own_mean), .squares = on_host(channel_sum(apart.square()))}, replicas);
  std::vector<double> unbiased, inverses;
  for (const double squares : all.squares) {
    unbiased.push_back(squares / static_cast<double>(all.count - 1));
    inverses.push_back(1 / std::sqrt(squares / static_cast<double>(all.count) + epsilon));
  }
  const at::Tensor mean = as_tensor(all.means, scale), inverse = as_tensor(inverses, scale);
  const at::Tensor factor = inverse.mul(scale);
  at::Tensor result =
      at::addcmul(by_channel(bias.sub(mean.mul(factor)), x), x, by_channel(factor, x)).to(x.scalar_type());
  if (running_mean.defined()) running_mean.mul_(1 - take).add_(mean, take);
  if (running_variance.defined()) running_variance.mul_(1 - take).add_(as_tensor(unbiased, running_variance), take);
  return {result, mean, inverse};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_gradients_of_replicas(
    const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& scale, const at::Tensor& mean,
    const at::Tensor& inverse_deviation, std::array<bool, 3> wants, ReplicaExchange& replicas) {
  const at::Tensor apart = x.to(at::kDouble).sub(by_channel(mean, x));
  const at::Tensor sum = channel_sum(gradient), products = channel_sum(apart.mul(gradient));
  std::array<at::Tensor, 3> gradients;
  if (wants[1]) gradients[1] = products.mul(inverse_deviation).to(scale.scalar_type());
  if (wants[2]) gradients[2] = sum.to(scale.scalar_type());
  if (!wants[0]) return {gradients[0], gradients[1], gradients[2]};
  ChannelSums all =
      of_all_replicas({.count = count_of(x), .first = on_host(sum), .second = on_host(products)}, replicas);
  const auto count = static_cast<double>(all.count);
  const at::Tensor like = apart;
  const at::Tensor gradient_mean = as_tensor(all.first, like).div_(count);
  const at::Tensor inverse = inverse_deviation.to(at::kDouble);
  const at::Tensor slope = as_tensor(all.second, like).mul_(inverse.square()).div_(count);
  gradients[0] = gradient.to(at::kDouble)
                     .sub(by_channel(gradient_mean, x))
                     .sub_(apart.mul(by_channel(slope, x)))
                     .mul_(by_channel(inverse.mul(scale), x))
                     .to(x.scalar_type());
  return {gradients[0], gradients[1], gradients[2]};
}

}  // namespace graphpipe::runtime
