#include "runtime/kernels/tensor_lists.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>

#include <optional>
#include <vector>

namespace graphpipe::runtime {
namespace {

c10::List<std::optional<at::Tensor>> list_of(AxisIndices indices) {
  c10::List<std::optional<at::Tensor>> list;
  for (const at::Tensor& each : indices) list.push_back(each.defined() ? std::optional(each) : std::nullopt);
  return list;
}

}  // namespace

at::Tensor concat(std::initializer_list<at::Tensor> parts, int64_t axis) {
  return at::cat(std::vector<at::Tensor>(parts), axis);
}

at::Tensor index(const at::Tensor& data, AxisIndices indices) { return at::index(data, list_of(indices)); }

at::Tensor index_put(const at::Tensor& data, AxisIndices indices, const at::Tensor& values, bool adds) {
  return at::index_put(data, list_of(indices), values, adds);
}

}  // namespace graphpipe::runtime
