#pragma once
// BatchNorm by the statistics of the batch, and its gradients: x [N, C, ..]. LibTorch's kernels add up one double after
// the other.

#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>

namespace graphpipe::runtime {

/// at::native_batch_norm in training: the result, the batch's means and 1 / deviations. Where the running statistics
/// are defined they move by `take` of the difference, the variance by that of the unbiased one.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(const at::Tensor& x, const at::Tensor& scale,
                                                          const at::Tensor& bias, const at::Tensor& running_mean,
                                                          const at::Tensor& running_variance, double take,
                                                          double epsilon);

/// at::native_batch_norm_backward of it: the gradients of x, scale and bias, those that `wants` names.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_backward(const at::Tensor& gradient, const at::Tensor& x,
                                                                   const at::Tensor& scale, const at::Tensor& mean,
                                                                   const at::Tensor& inverse_deviation, double epsilon,
                                                                   std::array<bool, 3> wants);

}  // namespace graphpipe::runtime
