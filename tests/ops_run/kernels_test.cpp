// The kernels that generated code calls, against LibTorch's own operators in float64.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <cmath>

#include "runtime/kernels/attention.h"
#include "runtime/kernels/gelu.h"
#include "runtime/kernels/linear.h"
#include "runtime/kernels/rms_norm.h"

namespace graphpipe::runtime {
namespace {

at::Tensor seeded(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}

double largest_difference(const at::Tensor& found, const at::Tensor& expected) {
  return (found.to(at::kDouble) - expected).abs().max().item<double>();
}

}  // namespace

TEST_CASE("products by either kernel, operands transposed or not, are those in float64") {
  const c10::InferenceMode no_autograd;
  for (const ProductKernel kernel : {ProductKernel::kBlas, ProductKernel::kOneDnn})
    for (const bool left_turned : {false, true})
      for (const bool right_turned : {false, true})
        for (const bool has_bias : {false, true}) {
          const at::Tensor a = left_turned ? seeded({96, 40}, 1).t() : seeded({40, 96}, 1);
          const at::Tensor b = right_turned ? seeded({72, 96}, 2).t() : seeded({96, 72}, 2);
          const at::Tensor bias = has_bias ? seeded({72}, 3) : at::Tensor();
          at::Tensor expected = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
          if (has_bias) expected = expected + bias;
          const at::Tensor found = matrix_product(kernel, a, b, bias);
          CHECK(found.sizes() == expected.sizes());
          CHECK(largest_difference(found, expected) < 2e-5);
          CHECK(found.equal(matrix_product(kernel, a, b, bias)));
        }
}

TEST_CASE("gradients of a weight add up as products do") {
  const c10::InferenceMode no_autograd;
  const at::Tensor x = seeded({4, 6, 32}, 4), gradient = seeded({4, 6, 48}, 5);
  for (const bool turned : {false, true}) {
    at::Tensor sum;
    for (int share = 0; share < 3; ++share) add_linear_weight_gradient(sum, x, gradient, turned);
    const at::Tensor once = linear_weight_gradient(x, gradient, turned);
    CHECK(sum.sizes() == once.sizes());
    CHECK(largest_difference(sum, once.to(at::kDouble) * 3) < 2e-5);
  }
}

TEST_CASE("gelu and its gradient are LibTorch's within 4e-7, from one tail to the other") {
  const c10::InferenceMode no_autograd;
  const at::Tensor x = at::linspace(-40, 40, 80003, at::kFloat), wide = x.to(at::kDouble);
  const at::Tensor one = at::linspace(1, 1, 80003, at::kFloat);
  CHECK((runtime::gelu(x).to(at::kDouble) - at::gelu(wide)).abs().div(wide.abs().clamp_min(1)).max().item<double>() <
        4e-7);
  CHECK(largest_difference(runtime::gelu_gradient(one, x), at::gelu_backward(one.to(at::kDouble), wide)) < 4e-7);
  // Rows of any length: the loop's vectors end within them.
  for (const int64_t count : {1, 7, 8, 9, 63})
    CHECK(runtime::gelu(x.narrow(0, 39990, count).clone()).equal(runtime::gelu(x).narrow(0, 39990, count)));
}

TEST_CASE("rms_norm divides rows of any width by the root of their mean square, and its gradient is that of float64") {
  for (const int64_t width : {1, 15, 16, 100}) {
    const c10::InferenceMode no_autograd;
    CAPTURE(width);
    const at::Tensor x = seeded({6, width}, 8), scale = seeded({width}, 9), gradient = seeded({6, width}, 10);
    const auto [found, inverse] = rms_norm(x, scale, 1, 1e-5);
    const auto [expected, wide] = rms_norm(x.to(at::kDouble), scale.to(at::kDouble), 1, 1e-5);
    CHECK(largest_difference(found, expected) < 2e-6);
    CHECK(largest_difference(inverse / wide, at::ones({6, 1}, at::kDouble)) < 1e-6);
    const at::Tensor of_x = rms_norm_input_gradient(gradient, x, inverse, scale);
    const at::Tensor wanted =
        rms_norm_input_gradient(gradient.to(at::kDouble), x.to(at::kDouble), wide, scale.to(at::kDouble));
    CHECK((of_x - wanted).abs().div(wide.clamp_min(1)).max().item<double>() < 2e-5);
  }
}

TEST_CASE("attention is softmax of the scaled products times the values, and keeps the rows' logarithms") {
  const c10::InferenceMode no_autograd;
  // As q, k and v come from one product: views with the heads between.
  const at::Tensor qkv = seeded({2, 70, 3, 4, 8}, 6).permute({2, 0, 3, 1, 4});
  const at::Tensor mask = seeded({2, 1, 1, 70}, 7);
  for (const bool causal : {false, true}) {
    const auto [found, rows] = attention(qkv[0], qkv[1], qkv[2], mask, causal, 0.25);
    const at::Tensor wide = qkv.to(at::kDouble);
    at::Tensor scores = at::matmul(wide[0], wide[1].mT()) * 0.25 + mask;
    if (causal) scores = scores + scores.new_full({70, 70}, -INFINITY).triu(1);
    CHECK(largest_difference(found, at::matmul(scores.softmax(-1), wide[2])) < 2e-6);
    CHECK(largest_difference(rows, scores.logsumexp(-1)) < 2e-6);
  }
}

}  // namespace graphpipe::runtime
