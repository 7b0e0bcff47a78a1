#include "runtime/kernels/linear.h"

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "runtime/kernels/product.h"

namespace graphpipe::runtime {
namespace {

at::Tensor rows_of(const at::Tensor& x) { return x.dim() == 2 ? x : x.flatten(0, -2); }

/// [M, N] with the leading axes of `like`.
at::Tensor with_axes_of(const at::Tensor& like, at::Tensor product) {
  if (like.dim() == 2) return product;
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes.back() = product.size(1);
  return product.view(sizes);
}

/// The operands whose product is the gradient of the weight.
std::pair<at::Tensor, at::Tensor> weight_gradient_operands(const at::Tensor& x, const at::Tensor& gradient,
                                                           bool transposed) {
  const at::Tensor rows = rows_of(x), other = rows_of(gradient);
  return transposed ? std::pair(other.t(), rows) : std::pair(rows.t(), other);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool transposed) {
  return with_axes_of(x, product(rows_of(x), transposed ? weight.t() : weight, bias));
}

at::Tensor linear_input_gradient(const at::Tensor& gradient, const at::Tensor& weight, bool transposed) {
  return with_axes_of(gradient, product(rows_of(gradient), transposed ? weight : weight.t(), {}));
}

at::Tensor linear_weight_gradient(const at::Tensor& x, const at::Tensor& gradient, bool transposed) {
  const auto [left, right] = weight_gradient_operands(x, gradient, transposed);
  return product(left, right, {});
}

void add_linear_weight_gradient(at::Tensor& sum, const at::Tensor& x, const at::Tensor& gradient, bool transposed) {
  const auto [left, right] = weight_gradient_operands(x, gradient, transposed);
  if (sum.defined()) product_into(sum, left, right, /*adds=*/true);
  else sum = product(left, right, {});
}

}  // namespace graphpipe::runtime
