#include "runtime/kernels/product.h"

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

#include "runtime/kernels/packed_product.h"
#include "runtime/kernels/vector_loops.h"

namespace at::native {
// result = beta * result + alpha * a b with oneDNN, using transposed operands as they are and allocating nothing.
// LibTorch exports it without a header; weak, so that it may be missing.
__attribute__((weak)) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta,
                                         float alpha);
}  // namespace at::native

namespace graphpipe::runtime {
namespace {

/// Whether the function exists and accepts float32; some versions reserve it for 16-bit types.
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

MatrixView view_of(const at::Tensor& matrix) {
  return {matrix.const_data_ptr<float>(), matrix.size(0), matrix.size(1), matrix.stride(0), matrix.stride(1)};
}

/// mkldnn::_linear_pointwise(X, W, bias, attr, scalars, algorithm): X W^T + bias. It has no C++ function of its own.
using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                   std::string_view, c10::List<std::optional<at::Scalar>>,
                                   std::optional<std::string_view>);

bool is_own(const at::Tensor& a, const at::Tensor& b) {
  return is_plain(a) && is_plain(b) && is_own_product(view_of(a), view_of(b));
}

/// Null if this LibTorch was built without oneDNN.
const c10::TypedOperatorHandle<LinearPointwise>* onednn_linear() {
  static const auto handle = []() -> std::optional<c10::TypedOperatorHandle<LinearPointwise>> {
    const auto schema = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    return schema ? std::optional(schema->typed<LinearPointwise>()) : std::nullopt;
  }();
  return handle ? &*handle : nullptr;
}

}  // namespace

Product product_of(const at::Tensor& a, const at::Tensor& b) {
  return {a.size(0), a.size(1), b.size(1), a.stride(1) != 1, b.stride(1) != 1};
}

ProductKernel product_kernel(const at::Tensor& a, const at::Tensor& b) {
  return is_plain(a) && is_plain(b) ? choose_product_kernel(product_of(a, b)) : ProductKernel::kBlas;
}

at::Tensor matrix_product(ProductKernel kernel, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  if (kernel == ProductKernel::kPacked) {
    at::Tensor result = new_floats({a.size(0), b.size(1)});
    multiply_packed(view_of(a), view_of(b), elements_of(bias), result.mutable_data_ptr<float>(), /*adds=*/false);
    return result;
  }
  if (kernel == ProductKernel::kBlas || onednn_linear() == nullptr)
    return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
  // The linear operator adds the bias without a separate pass, but copies operands in any other layout.
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

at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  if (!is_own(a, b) || (bias.defined() && !loop_takes(bias))) {
    const ProductKernel chosen = product_kernel(a, b);
    return matrix_product(chosen == ProductKernel::kPacked ? ProductKernel::kBlas : chosen, a, b, bias);
  }
  at::Tensor result = new_floats({a.size(0), b.size(1)});
  multiply_own(view_of(a), view_of(b), elements_of(bias), result.mutable_data_ptr<float>(), /*adds=*/false);
  return result;
}

void product_into(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, bool adds) {
  if (is_own(a, b) && loop_takes(result))
    return multiply_own(view_of(a), view_of(b), nullptr, result.mutable_data_ptr<float>(), adds);
  const ProductKernel kernel = product_kernel(a, b);
  if (kernel == ProductKernel::kOneDnn && result.is_contiguous() && has_direct_onednn())
    return at::native::mkldnn_matmul(a, b, result, adds ? 1 : 0, /*alpha=*/1);
  at::Tensor sum = result;
  if (kernel == ProductKernel::kOneDnn && adds) sum.add_(matrix_product(kernel, a, b, {}));
  else if (kernel == ProductKernel::kOneDnn) sum.copy_(matrix_product(kernel, a, b, {}));
  else if (adds) sum.addmm_(a, b);
  else at::mm_out(sum, a, b);
}

bool is_own_product(const MatrixView& left, const MatrixView& right) {
  if (is_small_product(left.rows, left.columns, right.columns)) return true;
  const Product product{left.rows, left.columns, right.columns, left.column_stride != 1, right.column_stride != 1};
  return left.rows > 0 && left.columns > 0 && right.columns > 0 &&
         choose_product_kernel(product) == ProductKernel::kPacked;
}

void multiply_own(const MatrixView& left, const MatrixView& right, const float* bias, float* result, bool adds) {
  const bool is_small = is_small_product(left.rows, left.columns, right.columns);
  return is_small ? multiply_small(left, right, bias, result, adds) : multiply_packed(left, right, bias, result, adds);
}

}  // namespace graphpipe::runtime
