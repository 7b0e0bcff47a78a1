#include "runtime/optimizers/gradient_norm.h"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <numeric>

namespace graphpipe::runtime {

at::Tensor squared_norm(const at::Tensor& gradient) {
  const at::Tensor wide = gradient.to(at::kDouble).flatten();
  return wide.dot(wide);
}

double sum_of_numbers(std::span<const at::Tensor> numbers) {
  if (numbers.empty()) return 0;
  const at::Tensor all = at::stack({numbers.data(), numbers.size()}).to(at::kCPU);
  const double* first = all.const_data_ptr<double>();
  return std::accumulate(first, first + all.numel(), 0.0);
}

double clip_factor(double norm, double largest) {
  return largest == 0 ? 1 : std::min(1.0, largest / (norm + 1e-6));  // 1e-6 as in clip_grad_norm_
}

}  // namespace graphpipe::runtime
