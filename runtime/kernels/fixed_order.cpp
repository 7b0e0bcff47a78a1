#include "runtime/kernels/fixed_order.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/scatter_add.h>

namespace graphpipe::runtime {

FixedOrder::FixedOrder()
    : algorithms_(at::globalContext().deterministicAlgorithms()),
      warns_(at::globalContext().deterministicAlgorithmsWarnOnly()),
      fills_(at::globalContext().deterministicFillUninitializedMemory()) {
  // The mode would also fill each new tensor, which the kernels overwrite.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

FixedOrder::~FixedOrder() {
  at::globalContext().setDeterministicAlgorithms(algorithms_, warns_);
  at::globalContext().setDeterministicFillUninitializedMemory(fills_);
}

at::Tensor scatter_add(const at::Tensor& data, int64_t axis, const at::Tensor& indices, const at::Tensor& updates) {
  if (data.is_cpu()) return at::scatter_add(data, axis, indices, updates);
  const FixedOrder order;
  return at::scatter_add(data, axis, indices, updates);
}

}  // namespace graphpipe::runtime
