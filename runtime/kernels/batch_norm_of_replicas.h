#pragma once
// BatchNorm over the samples of all replicas where the loops of batch_norm.h do not apply: on GPUs, for other types.

#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>

#include "runtime/replica_exchange.h"

namespace graphpipe::runtime {

/// As batch_norm(), with operators of LibTorch. The sums go through the host's memory.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_of_replicas(const at::Tensor& x, const at::Tensor& scale,
                                                                      const at::Tensor& bias,
                                                                      const at::Tensor& running_mean,
                                                                      const at::Tensor& running_variance, double take,
                                                                      double epsilon, ReplicaExchange& replicas);

/// As batch_norm_backward().
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_gradients_of_replicas(
    const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& scale, const at::Tensor& mean,
    const at::Tensor& inverse_deviation, std::array<bool, 3> wants, ReplicaExchange& replicas);

}  // namespace graphpipe::runtime
