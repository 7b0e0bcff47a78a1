#pragma once
// BatchNorm with the statistics of the batch, and its gradients: x [N, C, ..], which may be of bfloat16 while the
// numbers of channels are of float32, and so are its result and gradient then. LibTorch's kernels accumulate one double
// at a time. With `replicas` x is a part of the batch's samples, and the statistics are those of all parts; null: x is
// all of them.

#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>

#include "runtime/replica_exchange.h"

namespace graphpipe::runtime {

/// at::native_batch_norm in training mode: the result, the batch's means and 1 / deviations. If the running statistics
/// are defined, they move by `take` of the difference, the variance towards the unbiased one.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(const at::Tensor& x, const at::Tensor& scale,
                                                          const at::Tensor& bias, const at::Tensor& running_mean,
                                                          const at::Tensor& running_variance, double take,
                                                          double epsilon, ReplicaExchange* replicas = nullptr);

/// Its at::native_batch_norm_backward: the gradients of x, scale and bias that `wants` selects; of the latter two the
/// share of these samples.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                                   const at::Tensor& scale, const at::Tensor& mean,
                                                                   const at::Tensor& inverse_deviation, double epsilon,
                                                                   std::array<bool, 3> wants,
                                                                   ReplicaExchange* replicas = nullptr);

}  // namespace graphpipe::runtime
