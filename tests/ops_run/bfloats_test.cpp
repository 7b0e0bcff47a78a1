// The kernels that compute with bfloat16 themselves, against LibTorch's own operators.

#include "runtime/kernels/bfloats.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <tuple>
#include <vector>

#include "runtime/kernels/batch_norm.h"
#include "runtime/kernels/clip.h"
#include "runtime/kernels/linear.h"
#include "runtime/kernels/relu.h"
#include "runtime/kernels/small_product.h"
#include "runtime/kernels/sum_rows.h"
#include "runtime/kernels/vector_loops.h"
#include "tests/ops_run/differences.h"
#include "tests/ops_run/drawn.h"

namespace graphpipe::runtime {
namespace {

/// The distance of two numbers of bfloat16 near one, over two: what rounding adds.
constexpr double kRounding = 1.0 / 256;

at::Tensor bfloats(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat).to(at::kBFloat16);
}

/// Every number of bfloat16, NaN and infinities among them.
at::Tensor all_bfloats() { return at::arange(1 << 16, at::kInt).to(at::kShort).view(at::kBFloat16); }

bool same_bits(const at::Tensor& found, const at::Tensor& expected) {
  return found.view(at::kShort).equal(expected.view(at::kShort));
}

void check_rounded(const at::Tensor& found, const at::Tensor& expected) {
  CHECK((found.scalar_type() == at::kBFloat16));
  CHECK(found.sizes().equals(expected.sizes()));
  CHECK((found.to(at::kDouble) - expected).abs().le(expected.abs() * kRounding + 1e-5).all().item<bool>());
}

}  // namespace

TEST_CASE("bfloat16 is widened exactly and floats are rounded to the nearest, ties to even") {
  const at::Tensor every = all_bfloats(), is_number = every.isnan().logical_not();
  const at::Tensor wide = cast(every, at::kFloat);
  CHECK((wide.scalar_type() == at::kFloat));
  CHECK(wide.index({is_number}).equal(every.to(at::kFloat).index({is_number})));
  CHECK(wide.isnan().equal(every.isnan()));
  CHECK(same_bits(cast(wide, at::kBFloat16).index({is_number}), every.index({is_number})));
  CHECK(cast(wide, at::kBFloat16).isnan().equal(every.isnan()));
  // Halfway between two numbers, and next to it on either side.
  const at::Tensor bits = wide.index({wide.isfinite()}).view(at::kInt);
  for (const int past : {0x7FFF, 0x8000, 0x8001}) {
    const at::Tensor between = (bits + past).view(at::kFloat);
    CHECK(same_bits(cast(between, at::kBFloat16), between.to(at::kBFloat16)));
  }
}

TEST_CASE("a cast keeps the order of elements in memory that LibTorch's keeps, and the type it is given") {
  const at::Tensor turned = at::ones({3, 5}).t();
  CHECK(cast(turned, at::kBFloat16).strides().equals(turned.to(at::kBFloat16).strides()));
  CHECK(cast(at::ones({2, 0}), at::kBFloat16).sizes().equals({2, 0}));
  CHECK(cast(at::ones({}), at::kBFloat16).equal(at::ones({}, at::kBFloat16)));
  CHECK((cast(at::ones({3}, at::kLong), at::kFloat).scalar_type() == at::kFloat));
}

TEST_CASE("linear layers of bfloat16 and their gradients are the rounded ones of float64") {
  const c10::InferenceMode no_autograd;
  using Sizes = std::tuple<std::vector<int64_t>, int64_t>;
  // Own loops, with leading axes and columns that fill no vector, and what libraries multiply.
  for (const auto& [x_sizes, width] :
       {Sizes{{8, 64}, 64}, {{1, 1}, 1}, {{2, 3, 17}, 5}, {{33, 40}, 129}, {{8, 256}, 256}, {{300, 256}, 200}})
    for (const bool transposed : {true, false}) {
      const int64_t inner = x_sizes.back();
      std::vector<int64_t> made = x_sizes;
      made.back() = width;
      const at::Tensor x = bfloats(x_sizes, 1), bias = bfloats({width}, 3), gradient = bfloats(made, 4);
      const at::Tensor weight = bfloats(transposed ? at::IntArrayRef{width, inner} : at::IntArrayRef{inner, width}, 2);
      const auto wide = [](const at::Tensor& of) { return of.to(at::kDouble); };
      const at::Tensor matrix = transposed ? wide(weight).t() : wide(weight);
      CAPTURE(inner);
      CAPTURE(width);
      check_rounded(linear(x, weight, bias, transposed), at::matmul(wide(x), matrix) + wide(bias));
      check_rounded(linear(x, weight, {}, transposed), at::matmul(wide(x), matrix));
      check_rounded(linear_input_gradient(gradient, weight, transposed), at::matmul(wide(gradient), matrix.t()));
      const at::Tensor of_weight = at::matmul(wide(x).reshape({-1, inner}).t(), wide(gradient).reshape({-1, width}));
      check_rounded(linear_weight_gradient(x, gradient, transposed), transposed ? of_weight.t() : of_weight);
    }
  CHECK(is_small_product_of_bfloats(8, 256, 256) == has_avx2());
  CHECK(!is_small_product_of_bfloats(300, 256, 200));
}

TEST_CASE("relu of bfloat16 and its gradient are LibTorch's, of every number") {
  const at::Tensor every = all_bfloats(), is_number = every.isnan().logical_not();
  const at::Tensor found = runtime::relu(every);
  CHECK(found.index({is_number}).equal(at::relu(every).index({is_number})));
  CHECK(found.isnan().equal(every.isnan()));
  const at::Tensor place = every.clone();
  CHECK(runtime::relu_(place).is_same(place));
  CHECK(same_bits(place, found));
  const at::Tensor gradient = bfloats({1 << 16}, 5), passed = at::threshold_backward(gradient, every, 0);
  CHECK(same_bits(relu_gradient(gradient, every), passed));
  const at::Tensor own = gradient.clone();
  CHECK(relu_gradient_(own, every).is_same(own));
  CHECK(same_bits(own, passed));
}

TEST_CASE("gradients of a clip of bfloat16 are passed within the bounds, of every number") {
  const at::Tensor every = all_bfloats(), gradient = bfloats({1 << 16}, 5);
  const at::Tensor zeros = at::zeros({}, at::kBFloat16);
  // Bounds that bfloat16 has not are rounded, as those of the clip itself.
  for (const auto& [low, high] : {std::pair{0.0, 6.0}, {-1.0, 1.0}, {0.7, 6.0}, {-0.1, 0.1}}) {
    const at::Tensor is_inside = every.ge(low).logical_and(every.le(high));
    CHECK(same_bits(clip_gradient(gradient, every, low, high), at::where(is_inside, gradient, zeros)));
  }
}

TEST_CASE("BatchNorm of bfloat16 with numbers of float32 and its gradients are those of float64, rounded") {
  const c10::InferenceMode no_autograd;
  // Lines of one element, narrow and wide ones.
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{70, 90}, {5, 300, 3, 3}, {4, 10, 9, 11}}) {
    CAPTURE(sizes.size());
    const at::Tensor x = bfloats(sizes, 7), gradient = bfloats(sizes, 8);
    const at::Tensor scale = drawn({sizes[1]}, 9), bias = drawn({sizes[1]}, 10);
    const at::Tensor mean = at::zeros({sizes[1]}), variance = at::ones({sizes[1]});
    const auto wide = [](const at::Tensor& of) { return of.to(at::kDouble); };
    at::Tensor wide_mean = wide(mean), wide_variance = wide(variance);
    const auto [y, batch_mean, inverse] = batch_norm(x, scale, bias, mean, variance, 0.3, 1e-5);
    const auto [wide_y, wide_batch_mean, wide_inverse] =
        at::native_batch_norm(wide(x), wide(scale), wide(bias), wide_mean, wide_variance, /*training=*/true, 0.3, 1e-5);
    check_rounded(y, wide_y);
    for (const auto& [found, expected] : {std::pair(batch_mean, wide_batch_mean),
                                          {inverse, wide_inverse},
                                          {mean, wide_mean},
                                          {variance, wide_variance}}) {
      CHECK((found.scalar_type() == at::kFloat));
      CHECK(largest_difference(found, expected) < 1e-4);
    }
    const auto [of_x, of_scale, of_bias] =
        batch_norm_backward(gradient, x, scale, batch_mean, inverse, 1e-5, {true, true, true});
    const auto [wide_of_x, wide_of_scale, wide_of_bias] =
        at::native_batch_norm_backward(wide(gradient), wide(x), wide(scale), {}, {}, wide_batch_mean, wide_inverse,
                                       /*train=*/true, 1e-5, {true, true, true});
    check_rounded(of_x, wide_of_x);
    CHECK(largest_difference(of_scale, wide_of_scale) < 1e-3);
    CHECK(largest_difference(of_bias, wide_of_bias) < 1e-3);
  }
}

TEST_CASE("sums of bfloat16 over leading axes are the rounded ones of float64") {
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{1, 1}, {8, 64}, {3, 4, 70}, {100, 3}, {200, 64}}) {
    const at::Tensor x = bfloats(sizes, 6);
    const auto axes = static_cast<int64_t>(sizes.size()) - 1;
    const at::Tensor expected = x.to(at::kDouble).reshape({-1, sizes.back()}).sum(0);
    const at::Tensor found = sum_leading_axes(x, axes);
    CHECK((found.scalar_type() == at::kBFloat16));
    // Near zero what the float32 sum rounds counts too.
    CHECK((found.to(at::kDouble) - expected).abs().le(expected.abs() * kRounding + 1e-4).all().item<bool>());
  }
}

}  // namespace graphpipe::runtime
