#include "runtime/training/finite_gradients.h"

#include <ATen/ops/aminmax.h>

#include <algorithm>
#include <cmath>

#include "runtime/kernels/table_rows.h"

namespace graphpipe::runtime {
namespace {

// With a NaN, both the minimum and the maximum are NaN.
bool is_finite(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  const auto [smallest, largest] = at::aminmax(tensor);
  return std::isfinite(smallest.item<double>()) && std::isfinite(largest.item<double>());
}

}  // namespace

std::optional<size_t> not_finite_gradient(StageState& state) {
  const std::vector<at::Tensor>& gradients = gradients_of(state, 0);
  const auto found = std::ranges::find_if(state.trainable, [&](size_t index) {
    return gradients[index].defined() && !is_finite(stored_elements(gradients[index]));
  });
  if (found == state.trainable.end()) return std::nullopt;
  return *found;
}

}  // namespace graphpipe::runtime
