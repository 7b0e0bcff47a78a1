#include "runtime/kernels/linear.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/kernels/kernel_choice.h"

namespace at::native {
// result = beta * result + alpha * a b by oneDNN, with transposed operands as they are and nothing allocated. LibTorch
// exports it without a header; weak, so that one that does not have it is no error.
__attribute__((weak)) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta,
                                         float alpha);
}  // namespace at::native

namespace graphpipe::runtime {
namespace {

/// Whether it is there and takes float32, which some versions reserve for 16 bits.
bool has_direct_onednn() {
  static const bool has = [] {
    if (at::native::mkldnn_matmul == nullptr) return false;
    const at::Tensor two = at::full({2, 2}, 2, at::TensorOptions().dtype(at::kFloat)), sum = at::ones({2, 2});
    try {
      at::native::mkldnn_matmul(two.t(), two, sum, /*beta=*/1, /*alpha=*/1);
    } catch (const c10::Error&) {
      return false;
    }
    return sum.eq(9).all().item<bool>();
  }();
  return has;
}

/// mkldnn::_linear_pointwise(X, W, bias, attr, scalars, algorithm): X W^T + bias. It has no C++ function of its own.
using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                   std::string_view, c10::List<std::optional<at::Scalar>>,
                                   std::optional<std::string_view>);

/// Null where this LibTorch was built without oneDNN.
const c10::TypedOperatorHandle<LinearPointwise>* onednn_linear() {
  static const auto handle = []() -> std::optional<c10::TypedOperatorHandle<LinearPointwise>> {
    const auto schema = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    return schema ? std::optional(schema->typed<LinearPointwise>()) : std::nullopt;
  }();
  return handle ? &*handle : nullptr;
}

/// oneDNN's operators take float32 on CPUs, and autograd does not see through them.
ProductKernel kernel_for(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_cpu() || a.scalar_type() != at::kFloat || b.scalar_type() != at::kFloat) return ProductKernel::kBlas;
  if (at::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad())) return ProductKernel::kBlas;
  return choose_product_kernel({a.size(0), a.size(1), b.size(1)});
}

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  return matrix_product(kernel_for(a, b), a, b, bias);
}

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
                                                           bool turned) {
  const at::Tensor rows = rows_of(x), other = rows_of(gradient);
  return turned ? std::pair(other.t(), rows) : std::pair(rows.t(), other);
}

}  // namespace

at::Tensor matrix_product(ProductKernel kernel, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  if (kernel == ProductKernel::kBlas || onednn_linear() == nullptr)
    return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
  // That one adds the bias without a pass of its own, but copies what does not lie so.
  const bool lies_so = a.is_contiguous() && b.t().is_contiguous();
  if (!has_direct_onednn() || (bias.defined() && lies_so)) {
    const std::optional<at::Tensor> row = bias.defined() ? std::optional(bias) : std::nullopt;
    return onednn_linear()->call(a, b.t(), row, "none", c10::List<std::optional<at::Scalar>>(), "");
  }
  at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  if (bias.defined()) result.copy_(bias.expand(result.sizes()));
  at::native::mkldnn_matmul(a, b, result, bias.defined() ? 1 : 0, /*alpha=*/1);
  return result;
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool turned) {
  return with_axes_of(x, matrix_product(rows_of(x), turned ? weight.t() : weight, bias));
}

at::Tensor linear_input_gradient(const at::Tensor& gradient, const at::Tensor& weight, bool turned) {
  return with_axes_of(gradient, matrix_product(rows_of(gradient), turned ? weight : weight.t(), {}));
}

at::Tensor linear_weight_gradient(const at::Tensor& x, const at::Tensor& gradient, bool turned) {
  const auto [left, right] = weight_gradient_operands(x, gradient, turned);
  return matrix_product(left, right, {});
}

void add_linear_weight_gradient(at::Tensor& sum, const at::Tensor& x, const at::Tensor& gradient, bool turned) {
  const auto [left, right] = weight_gradient_operands(x, gradient, turned);
  if (!sum.defined()) sum = matrix_product(left, right, {});
  else if (kernel_for(left, right) == ProductKernel::kBlas) sum.addmm_(left, right);
  else if (sum.is_contiguous() && has_direct_onednn())
    at::native::mkldnn_matmul(left, right, sum, /*beta=*/1, /*alpha=*/1);
  else sum.add_(matrix_product(left, right, {}));
}

}  // namespace graphpipe::runtime
