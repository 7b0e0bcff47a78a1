#include "runtime/training/finite_gradients.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <utility>
#include <vector>

#include "runtime/kernels/table_rows.h"

namespace graphpipe::runtime {
namespace {

// The smallest and the largest number of each tensor; with a NaN, both are NaN. Waits for a GPU once.
at::Tensor extremes(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> found;
  for (const at::Tensor& tensor : tensors) {
    const auto [smallest, largest] = at::aminmax(tensor);
    found.push_back(at::stack({smallest, largest}).to(at::kDouble));
  }
  return at::stack(found).to(at::kCPU);
}

}  // namespace

std::optional<size_t> not_finite_gradient(StageState& state) {
  const std::vector<at::Tensor>& gradients = gradients_of(state, 0);
  std::vector<at::Tensor> elements;
  std::vector<size_t> indices;
  for (size_t index : state.trainable) {
    if (!gradients[index].defined() || gradients[index].numel() == 0) continue;
    at::Tensor stored = stored_elements(gradients[index]);
    if (stored.numel() == 0) continue;
    elements.push_back(std::move(stored));
    indices.push_back(index);
  }
  if (elements.empty()) return std::nullopt;
  const at::Tensor found = extremes(elements);
  const double* numbers = found.const_data_ptr<double>();
  for (size_t i = 0; i < indices.size(); ++i)
    if (!std::isfinite(numbers[2 * i]) || !std::isfinite(numbers[2 * i + 1])) return indices[i];
  return std::nullopt;
}

}  // namespace graphpipe::runtime
