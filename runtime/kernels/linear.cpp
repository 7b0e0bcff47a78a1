#include "runtime/kernels/linear.h"

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "runtime/kernels/bfloats.h"
#include "runtime/kernels/product.h"
#include "runtime/kernels/small_product.h"
#include "runtime/kernels/vector_loops.h"

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

/// Rows side by side, as a matrix.
MatrixView matrix_of(const at::Tensor& x) {
  const int64_t columns = x.size(-1);
  return {x.const_data_ptr<float>(), x.numel() / columns, columns, columns, 1};
}

/// Whether own loops may multiply the two as they lie. Then no tensor is made that shows one of them in another way,
/// which takes a tenth of the time of a small product.
bool are_for_loops(const at::Tensor& x, const at::Tensor& other) {
  return loop_takes(x) && loop_takes(other) && x.numel() > 0 && other.numel() > 0;
}

/// Undefined where own loops do not multiply these.
at::Tensor own_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool is_turned) {
  if (!are_for_loops(x, weight) || (bias.defined() && !loop_takes(bias))) return {};
  const MatrixView rows = matrix_of(x), matrix = is_turned ? matrix_of(weight).turned() : matrix_of(weight);
  if (!is_own_product(rows, matrix)) return {};
  at::DimVector sizes(x.sizes());
  sizes.back() = matrix.columns;
  at::Tensor result = new_floats(sizes);
  multiply_own(rows, matrix, elements_of(bias), result.mutable_data_ptr<float>(),
               /*adds=*/false);
  return result;
}

/// False where own loops do not multiply these.
bool add_own_weight_gradient(at::Tensor& sum, const at::Tensor& x, const at::Tensor& gradient, bool transposed) {
  const bool adds = sum.defined();
  if (!are_for_loops(x, gradient) || (adds && !loop_takes(sum))) return false;
  const MatrixView rows = matrix_of(x), others = matrix_of(gradient);
  const MatrixView left = transposed ? others.turned() : rows.turned(), right = transposed ? rows : others;
  if (!is_own_product(left, right)) return false;
  if (!adds) sum = new_floats({left.rows, right.columns});
  multiply_own(left, right, nullptr, sum.mutable_data_ptr<float>(), adds);
  return true;
}

// --- the same with operands of bfloat16, which are widened first ---

bool is_small_of_bfloats(const at::Tensor& x, const at::Tensor& other, int64_t columns) {
  return are_bfloats(x) && are_bfloats(other) && x.numel() > 0 &&
         is_small_product_of_bfloats(x.numel() / x.size(-1), x.size(-1), columns);
}

struct WidenedOperands {
  alignas(64) float left[kMaxSmallFloats], right[kMaxSmallFloats], bias[kMaxSmallFloats], result[kMaxSmallFloats];
};

/// Of this thread, made when it first needs them.
WidenedOperands& widened_operands() {
  thread_local const std::unique_ptr<WidenedOperands> all = std::make_unique<WidenedOperands>();
  return *all;
}

/// Rows side by side, as a matrix of floats. Needs: the elements that is_small_product allows an operand.
MatrixView widened_matrix_of(const at::Tensor& x, float* to) {
  widen(bits_of(x), x.numel(), to);
  const int64_t columns = x.size(-1);
  return {to, x.numel() / columns, columns, columns, 1};
}

at::Tensor small_linear_of_bfloats(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                   bool is_turned) {
  WidenedOperands& widened = widened_operands();
  const MatrixView rows = widened_matrix_of(x, widened.left), matrix = widened_matrix_of(weight, widened.right),
                   right = is_turned ? matrix.turned() : matrix;
  if (bias.defined()) widen(bits_of(bias), bias.numel(), widened.bias);
  multiply_small(rows, right, bias.defined() ? widened.bias : nullptr, widened.result, /*adds=*/false);
  at::DimVector sizes(x.sizes());
  sizes.back() = right.columns;
  return narrowed(widened.result, sizes);
}

at::Tensor small_weight_gradient_of_bfloats(const at::Tensor& x, const at::Tensor& gradient, bool transposed) {
  WidenedOperands& widened = widened_operands();
  const MatrixView rows = widened_matrix_of(x, widened.left), others = widened_matrix_of(gradient, widened.right);
  const MatrixView left = transposed ? others.turned() : rows.turned(), right = transposed ? rows : others;
  multiply_small(left, right, nullptr, widened.result, /*adds=*/false);
  return narrowed(widened.result, {left.rows, right.columns});
}

/// The operands whose product is the gradient of the weight.
std::pair<at::Tensor, at::Tensor> weight_gradient_operands(const at::Tensor& x, const at::Tensor& gradient,
                                                           bool transposed) {
  const at::Tensor rows = rows_of(x), other = rows_of(gradient);
  return transposed ? std::pair(other.t(), rows) : std::pair(rows.t(), other);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool transposed) {
  if (at::Tensor own = own_linear(x, weight, bias, transposed); own.defined()) return own;
  if (is_small_of_bfloats(x, weight, weight.size(transposed ? 0 : 1)) && (!bias.defined() || are_bfloats(bias)))
    return small_linear_of_bfloats(x, weight, bias, transposed);
  return with_axes_of(x, product(rows_of(x), transposed ? weight.t() : weight, bias));
}

at::Tensor linear_input_gradient(const at::Tensor& gradient, const at::Tensor& weight, bool transposed) {
  if (at::Tensor own = own_linear(gradient, weight, {}, !transposed); own.defined()) return own;
  if (is_small_of_bfloats(gradient, weight, weight.size(transposed ? 1 : 0)))
    return small_linear_of_bfloats(gradient, weight, {}, !transposed);
  return with_axes_of(gradient, product(rows_of(gradient), transposed ? weight : weight.t(), {}));
}

at::Tensor linear_weight_gradient(const at::Tensor& x, const at::Tensor& gradient, bool transposed) {
  if (is_small_of_bfloats(x, gradient, gradient.size(-1)))
    return small_weight_gradient_of_bfloats(x, gradient, transposed);
  at::Tensor result;
  add_linear_weight_gradient(result, x, gradient, transposed);
  return result;
}

void add_linear_weight_gradient(at::Tensor& sum, const at::Tensor& x, const at::Tensor& gradient, bool transposed) {
  if (add_own_weight_gradient(sum, x, gradient, transposed)) return;
  const auto [left, right] = weight_gradient_operands(x, gradient, transposed);
  if (sum.defined()) product_into(sum, left, right, /*adds=*/true);
  else sum = product(left, right, {});
}

}  // namespace graphpipe::runtime
