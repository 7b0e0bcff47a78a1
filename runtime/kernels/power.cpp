#include "runtime/kernels/power.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <optional>

namespace graphpipe::runtime {
namespace {

/// The exponent, where it is one number that no device has to be waited for, has no gradient and does not widen x.
std::optional<double> number_of(const at::Tensor& x, const at::Tensor& exponent) {
  const bool is_number = exponent.numel() == 1 && exponent.dim() <= x.dim() && exponent.is_cpu();
  const bool is_recorded = at::GradMode::is_enabled() && exponent.requires_grad();
  return is_number && !is_recorded && x.is_floating_point() ? std::optional(exponent.item<double>()) : std::nullopt;
}

}  // namespace

at::Tensor power(const at::Tensor& x, const at::Tensor& exponent) {
  const std::optional<double> number = number_of(x, exponent);
  return number ? at::pow(x, *number) : at::pow(x, exponent);
}

at::Tensor power_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& exponent) {
  const std::optional<double> number = number_of(x, exponent);
  if (!number) return at::where(exponent.eq(0.0), 0.0, x.pow(exponent.sub(1)).mul_(exponent).mul_(gradient));
  if (*number == 0) return at::zeros_like(x);
  if (*number == 2) return at::mul(gradient, x).mul_(2.0);
  return at::pow(x, *number - 1).mul_(*number).mul_(gradient);
}

}  // namespace graphpipe::runtime
