#pragma once
// Several of LibTorch's GPU kernels add numbers in the order in which threads arrive, so that the last bits of their
// sums vary from run to run. Where LibTorch has another version with a fixed order, its deterministic mode selects it.

#include <cstdint>

namespace at {
class Tensor;
}

namespace graphpipe::runtime {

/// The deterministic mode, while it lives, for the whole process: no other thread may compute on the GPU meanwhile. One
/// at a time.
class FixedOrder {
 public:
  FixedOrder();
  ~FixedOrder();
  FixedOrder(const FixedOrder&) = delete;
  FixedOrder& operator=(const FixedOrder&) = delete;

 private:
  bool algorithms_, warns_, fills_;
};

/// at::scatter_add in a fixed order, on CPUs and GPUs: gradients that meet in one element.
at::Tensor scatter_add(const at::Tensor& data, int64_t axis, const at::Tensor& indices, const at::Tensor& updates);

}  // namespace graphpipe::runtime
