#pragma once
// How far what a kernel computes is from what it should be.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

namespace graphpipe::runtime {

/// Of any two elements; `expected` is of float64, on the CPU.
inline double largest_difference(const at::Tensor& found, const at::Tensor& expected) {
  return (found.cpu().to(at::kDouble) - expected).abs().max().item<double>();
}

}  // namespace graphpipe::runtime
