#pragma once
// Operands of kernels, drawn from a normal distribution, and how far results are from what is expected.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <doctest/doctest.h>

namespace graphpipe::runtime {

inline at::Tensor drawn(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}

/// By the largest element of what is expected, which is in float64.
inline double relative_difference(const at::Tensor& found, const at::Tensor& expected) {
  REQUIRE(found.sizes() == expected.sizes());
  return ((found.to(at::kDouble) - expected).abs().max() / expected.abs().max()).item<double>();
}

}  // namespace graphpipe::runtime
