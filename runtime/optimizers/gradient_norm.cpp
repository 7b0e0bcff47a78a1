#include "runtime/optimizers/gradient_norm.h"

#include <ATen/ops/stack.h>

#include <algorithm>

namespace graphpipe::runtime {

std::vector<double> squared_norms(std::span<const at::Tensor> gradients) {
  std::vector<at::Tensor> sums;
  for (const at::Tensor& gradient : gradients) {
    const at::Tensor wide = gradient.to(at::kDouble).flatten();
    sums.push_back(wide.dot(wide));
  }
  if (sums.empty()) return {};
  const at::Tensor all = at::stack(sums).to(at::kCPU);
  const double* first = all.const_data_ptr<double>();
  return {first, first + all.numel()};
}

double clip_factor(double norm, double largest) {
  return largest == 0 ? 1 : std::min(1.0, largest / (norm + 1e-6));  // 1e-6 as in clip_grad_norm_
}

}  // namespace graphpipe::runtime
