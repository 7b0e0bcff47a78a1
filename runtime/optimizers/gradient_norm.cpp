#include "runtime/optimizers/gradient_norm.h"

#include <algorithm>

namespace graphpipe::runtime {

double squared_norm(const at::Tensor& gradient) {
  const at::Tensor wide = gradient.to(at::kDouble).flatten();
  return wide.dot(wide).item<double>();
}

double clip_factor(double norm, double largest) {
  return largest == 0 ? 1 : std::min(1.0, largest / (norm + 1e-6));  // 1e-6 as in clip_grad_norm_
}

}  // namespace graphpipe::runtime
