#pragma once
// Operands of kernels, drawn from a normal distribution.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>

namespace graphpipe::runtime {

inline at::Tensor drawn(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}

}  // namespace graphpipe::runtime
