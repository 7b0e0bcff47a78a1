// The kernels that generated code calls, against LibTorch's own operators in float64.

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <cmath>

#include "runtime/error.h"
#include "runtime/kernels/attention.h"
#include "runtime/kernels/attention_loops.h"
#include "runtime/kernels/clip.h"
#include "runtime/kernels/fixed_order.h"
#include "runtime/kernels/gelu.h"
#include "runtime/kernels/linear.h"
#include "runtime/kernels/packed_product.h"
#include "runtime/kernels/power.h"
#include "runtime/kernels/product.h"
#include "runtime/kernels/rms_norm.h"
#include "runtime/kernels/rotary.h"
#include "runtime/kernels/scale_number.h"
#include "runtime/kernels/small_product.h"
#include "runtime/kernels/sum_rows.h"
#include "runtime/kernels/top_k.h"
#include "runtime/kernels/vector_loops.h"
#include "support/units.h"
#include "tests/ops_run/differences.h"
#include "tests/ops_run/drawn.h"
#include "tests/ops_run/test_device.h"

namespace graphpipe::runtime {
namespace {}  // namespace

TEST_CASE("products by any kernel, operands transposed or not, are those in float64") {
  const c10::InferenceMode no_autograd;
  for (const ProductKernel kernel : {ProductKernel::kBlas, ProductKernel::kOneDnn, ProductKernel::kPacked}) {
    if (kernel == ProductKernel::kPacked && !has_packed_product()) continue;
    for (const bool left_turned : {false, true})
      for (const bool right_turned : {false, true})
        for (const bool has_bias : {false, true}) {
          const at::Tensor a = left_turned ? drawn({96, 40}, 1).t() : drawn({40, 96}, 1);
          const at::Tensor b = right_turned ? drawn({72, 96}, 2).t() : drawn({96, 72}, 2);
          const at::Tensor bias = has_bias ? drawn({72}, 3) : at::Tensor();
          at::Tensor expected = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
          if (has_bias) expected = expected + bias;
          const at::Tensor found = matrix_product(kernel, a, b, bias);
          CHECK(found.sizes() == expected.sizes());
          CHECK(largest_difference(found, expected) < 2e-5);
          CHECK(found.equal(matrix_product(kernel, a, b, bias)));
        }
  }
}

TEST_CASE("small products are those in float64, whatever their sizes and the order of their operands in memory") {
  const c10::InferenceMode no_autograd;
  const std::vector<int64_t> sizes = {1, 2, 5, 7, 8, 9, 16, 17, 33, 64};
  for (size_t m = 0; m < sizes.size(); ++m)
    for (size_t n = 0; n < sizes.size(); ++n)
      for (const bool left_turned : {false, true})
        for (const bool right_turned : {false, true}) {
          const int64_t rows = sizes[m], columns = sizes[n], inner = sizes[(m + 3 * n) % sizes.size()];
          const at::Tensor a = left_turned ? drawn({inner, rows}, 1).t() : drawn({rows, inner}, 1);
          const at::Tensor b = right_turned ? drawn({columns, inner}, 2).t() : drawn({inner, columns}, 2);
          const at::Tensor bias = drawn({columns}, 3), expected = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
          CAPTURE(rows);
          CAPTURE(inner);
          CAPTURE(columns);
          CHECK(is_small_product(rows, inner, columns) == has_avx2());
          CHECK(largest_difference(product(a, b, {}), expected) < 2e-5);
          CHECK(largest_difference(product(a, b, bias), expected + bias) < 2e-5);
          const at::Tensor sum = at::ones({rows, columns});
          product_into(sum, a, b, /*adds=*/true);
          CHECK(largest_difference(sum, expected + 1) < 2e-5);
          product_into(sum, a, b, /*adds=*/false);
          CHECK(sum.equal(product(a, b, {})));
        }
}

TEST_CASE("own loops multiply more where one side is short, and nothing beyond their memory") {
  const c10::InferenceMode no_autograd;
  CHECK(!is_small_product(65, 64, 64));
  CHECK(is_small_product(8, 256, 256) == has_avx2());
  CHECK(is_small_product(256, 8, 256) == has_avx2());
  CHECK(!is_small_product(9, 256, 256));
  CHECK(!is_small_product(1, 1 << 17, 1));
  for (const bool right_turned : {false, true}) {
    const at::Tensor a = drawn({8, 256}, 1), b = right_turned ? drawn({256, 256}, 2).t() : drawn({256, 256}, 2);
    CHECK(largest_difference(product(a, b, {}), at::matmul(a.to(at::kDouble), b.to(at::kDouble))) < 5e-5);
  }
}

TEST_CASE("a number is scaled in its place, as LibTorch scales it") {
  const c10::InferenceMode no_autograd;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::full({}, 0.3, type), factor = at::full({}, 0.7, type), expected = at::mul(x, factor);
    CHECK(scale_number_(x, factor).is_same(x));
    CHECK(x.equal(expected));
  }
}

TEST_CASE("sums over leading axes are those of float64, for any number of rows and columns") {
  const c10::InferenceMode no_autograd;
  for (const int64_t rows : {1, 5, 64, 1000})
    for (const int64_t columns : {1, 9, 64, 150}) {
      const at::Tensor x = drawn({rows, 2, columns}, 1);
      for (const int64_t axes : {1, 2}) {
        const std::vector<int64_t> both = {0, 1};
        const at::IntArrayRef leading = at::IntArrayRef(both).slice(0, static_cast<size_t>(axes));
        for (const at::Tensor& view : {x, x.transpose(0, 1)}) {
          const at::Tensor found = sum_leading_axes(view, axes), expected = at::sum(view.to(at::kDouble), leading);
          CHECK(found.sizes() == expected.sizes());
          CHECK(largest_difference(found, expected) < 2e-6 * std::sqrt(static_cast<double>(rows)) + 1e-6);
        }
      }
    }
  for (const int64_t columns : {1, 80}) {  // of equal numbers, whose errors do not cancel
    const at::Tensor sums = sum_leading_axes(at::full({1 << 18, columns}, 0.1, at::kFloat), 1);
    CHECK(largest_difference(sums, at::full({columns}, 0.1F * (1 << 18), at::kDouble)) < 0.03);
  }
  CHECK(sum_leading_axes(at::ones({0, 3}), 1).equal(at::zeros({3})));
}

TEST_CASE("the measured kernel of a product is taken, with operands that lie so and as many threads") {
  const Product product{128, 256, 64, false, true};
  const ProductKernel ruled = product_kernel_by_rule(product),
                      other = ruled == ProductKernel::kBlas ? ProductKernel::kOneDnn : ProductKernel::kBlas;
  const auto table = [&](int threads) {
    return wire::print_product_table({.threads = threads, .products = {{product, other}}});
  };
  const at::Tensor a = at::zeros({128, 256}), b = at::zeros({64, 256}).t();
  CHECK(product_of(a, b) == product);
  take_measured_kernels(table(at::get_num_threads()));
  CHECK(product_kernel(a, b) == other);
  CHECK(product_kernel(a, b.contiguous()) == ruled);
  take_measured_kernels(table(at::get_num_threads() + 1));
  CHECK(product_kernel(a, b) == ruled);
  CHECK_THROWS_AS(take_measured_kernels("no table"), RunError);
  take_measured_kernels("");
  CHECK(product_kernel(a, b) == ruled);
}

TEST_CASE("a linear layer, its gradients among them, has the bits of the kernel that was measured as the fastest") {
  if (!has_packed_product()) return;
  const c10::InferenceMode no_autograd;
  // Sums so long that kernels divide them, each in another way.
  const at::Tensor x = drawn({128, 1000}, 1), weight = drawn({64, 1000}, 2), bias = drawn({64}, 3);
  const at::Tensor gradient = drawn({128, 64}, 4);
  std::vector<at::Tensor> results;
  for (const ProductKernel kernel : {ProductKernel::kBlas, ProductKernel::kPacked}) {
    take_measured_kernels(wire::print_product_table({.threads = at::get_num_threads(),
                                                     .products = {{{64, 128, 1000, true, false}, kernel},
                                                                  {{128, 64, 1000, false, false}, kernel},
                                                                  {{128, 1000, 64, false, true}, kernel}}}));
    results.push_back(linear(x, weight, bias, true));
    CHECK(results.back().equal(matrix_product(kernel, x, weight.t(), bias)));
    CHECK(linear_input_gradient(gradient, weight, true).equal(matrix_product(kernel, gradient, weight, {})));
    CHECK(linear_weight_gradient(x, gradient, true).equal(matrix_product(kernel, gradient.t(), x, {})));
  }
  take_measured_kernels("");
  CHECK(!results.front().equal(results.back()));  // else this would not tell them apart
}

TEST_CASE("gradients of a weight add up as products do") {
  const c10::InferenceMode no_autograd;
  const at::Tensor x = drawn({4, 6, 32}, 4), gradient = drawn({4, 6, 48}, 5);
  for (const bool turned : {false, true}) {
    at::Tensor sum;
    for (int share = 0; share < 3; ++share) add_linear_weight_gradient(sum, x, gradient, turned);
    const at::Tensor once = linear_weight_gradient(x, gradient, turned);
    CHECK(sum.sizes() == once.sizes());
    CHECK(largest_difference(sum, once.to(at::kDouble) * 3) < 2e-5);
  }
}

TEST_CASE("powers of one number are those of LibTorch, and their gradients those of its operators") {
  const c10::InferenceMode no_autograd;
  const at::Tensor x = at::arange(1, 25, at::kFloat).div_(7).view({4, 6}),
                   gradient = at::arange(24, at::kFloat).view({4, 6});
  for (const double number : {0.0, 1.0, 2.0, 3.0, 0.5, -1.0, 1.7}) {
    CAPTURE(number);
    for (const at::Tensor& exponent : {at::full({}, number), at::full({1}, number)}) {
      const at::Tensor wide = exponent.to(at::kDouble), wide_x = x.to(at::kDouble);
      CHECK(largest_difference(power(x, exponent), wide_x.pow(wide)) < 1e-5);
      const at::Tensor slope = number == 0 ? at::zeros_like(wide_x) : wide_x.pow(wide.sub(1)).mul(wide);
      CHECK(largest_difference(power_gradient(gradient, x, exponent), slope.mul(gradient)) < 1e-3);
    }
    const at::Tensor many = at::full({6}, number);
    CHECK(power(x, many).equal(at::pow(x, many)));
  }
  // A zero is no pole where the exponent is zero, and has the slope of a line where it is one.
  const at::Tensor none = at::zeros({3}), ones = at::ones({3});
  CHECK(power_gradient(ones, none, at::full({}, 0.0)).equal(none));
  CHECK(power_gradient(ones, none, at::full({}, 1.0)).equal(ones));
}

TEST_CASE("the k first elements are those of a stable sort, with ties, infinities and NaNs") {
  const c10::InferenceMode no_autograd;
  at::Tensor x = drawn({5, 40, 3}, 1).mul_(3).round_();
  x.select(1, 7).fill_(std::nan(""));
  x.select(1, 9).fill_(kInfinity);
  for (const int64_t axis : {0, 1, 2})
    for (const bool is_transposed : {false, true})
      for (const bool largest : {false, true})
        for (const int64_t k : {0, 1, 2, 3}) {
          const at::Tensor of = is_transposed ? x.transpose(1, 2) : x.transpose(1, 2).contiguous();
          const auto [values, places] = top_k(of, k, axis, largest);
          const auto [sorted, order] = at::sort(of, std::optional<bool>(true), axis, largest);
          CHECK(places.equal(order.narrow(axis, 0, k)));
          CHECK(values.nan_to_num(123).equal(sorted.narrow(axis, 0, k).nan_to_num(123)));
        }
}

TEST_CASE("the gradient of a clip passes within the bounds, these included, to the bit of LibTorch's operators") {
  const c10::InferenceMode no_autograd;
  const at::Tensor gradient = at::arange(1, 38, at::kFloat);
  at::Tensor x = at::arange(-18, 19, at::kFloat).div_(4);
  x.select(0, 3).fill_(std::nan(""));
  x.select(0, 4).fill_(-kInfinity);
  x.select(0, 5).fill_(kInfinity);
  for (const auto& [low, high] : {std::pair{-2.0, 3.25}, {-kInfinity, 0.5}, {0.0, kInfinity}, {1.0, -1.0}}) {
    const at::Tensor passed = at::where(x.ge(low).logical_and(x.le(high)), gradient, 0.0);
    CHECK(clip_gradient(gradient, x, low, high).equal(passed));
    CHECK(clip_gradient(gradient.to(at::kDouble), x.to(at::kDouble), low, high).equal(passed.to(at::kDouble)));
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
    const at::Tensor x = drawn({6, width}, 8), scale = drawn({width}, 9), gradient = drawn({6, width}, 10);
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

TEST_CASE("rms_norm of 16 bits has statistics that 16 bits cannot hold") {
  const at::Tensor scale = at::ones({64}, at::kHalf);
  for (const double size : {300.0, 1e-5, 0.0}) {
    CAPTURE(size);
    const at::Tensor x = (drawn({5, 64}, 21) * size).to(at::kHalf), gradient = drawn({5, 64}, 22).to(at::kHalf);
    const auto [result, inverse] = rms_norm(x, scale, 1, 1e-8);
    const auto [expected, wide_inverse] = rms_norm(x.to(at::kDouble), scale.to(at::kDouble), 1, 1e-8);
    CHECK((result.scalar_type() == at::kHalf));
    CHECK(largest_difference(result, expected) < 2e-3);
    const at::Tensor found = rms_norm_input_gradient(gradient, x, inverse, scale);
    const at::Tensor wide =
        rms_norm_input_gradient(gradient.to(at::kDouble), x.to(at::kDouble), wide_inverse, scale.to(at::kDouble));
    CHECK(largest_difference(found.to(at::kDouble).div(wide_inverse), wide.div(wide_inverse)) < 4e-3);
  }
}

TEST_CASE("attention is softmax of the scaled products times the values, and keeps the rows' logarithms") {
  const c10::InferenceMode no_autograd;
  // As q, k and v come from one product: views with the heads between.
  const at::Tensor qkv = drawn({2, 70, 3, 4, 8}, 6).permute({2, 0, 3, 1, 4});
  const at::Tensor mask = drawn({2, 1, 1, 70}, 7);
  for (const bool causal : {false, true}) {
    const auto [found, rows] = attention(qkv[0], qkv[1], qkv[2], mask, causal, 0.25);
    const at::Tensor wide = qkv.to(at::kDouble);
    at::Tensor scores = at::matmul(wide[0], wide[1].mT()) * 0.25 + mask;
    if (causal) scores = scores + scores.new_full({70, 70}, -INFINITY).triu(1);
    CHECK(largest_difference(found, at::matmul(scores.softmax(-1), wide[2])) < 2e-6);
    CHECK(largest_difference(rows, scores.logsumexp(-1)) < 2e-6);
  }
}

struct AttentionCase {
  int64_t rows, columns, width;
  bool causal, masked;
};

TEST_CASE("attention and its gradients of any sizes are those that autograd finds in float64") {
  for (const AttentionCase& each :
       {AttentionCase{1, 1, 1, false, false}, AttentionCase{3, 5, 4, false, true}, AttentionCase{5, 3, 17, true, false},
        AttentionCase{64, 64, 32, true, true}, AttentionCase{65, 130, 40, false, true},
        AttentionCase{130, 65, 64, true, false}, AttentionCase{200, 200, 80, true, true},
        AttentionCase{197, 197, 64, false, false}, AttentionCase{128, 128, 32, true, false}}) {
    CAPTURE(each.rows);
    const at::Tensor q = drawn({2, 3, each.rows, each.width}, 8), k = drawn({2, 3, each.columns, each.width}, 9);
    const at::Tensor v = drawn({2, 3, each.columns, each.width}, 10), gradient = drawn(q.sizes(), 11);
    const at::Tensor mask = each.masked ? drawn({2, 1, each.rows, each.columns}, 12) : at::Tensor();
    const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble).requires_grad_(true); };
    const std::vector<at::Tensor> inputs{wide(q), wide(k), wide(v)};
    const at::Tensor wide_mask = each.masked ? wide(mask) : at::Tensor();
    const auto [wanted, wanted_rows] = attention(inputs[0], inputs[1], inputs[2], wide_mask, each.causal, 0.3);
    wanted.backward(gradient.to(at::kDouble));
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      CAPTURE(static_cast<int>(type));
      const double tolerance = type == at::kFloat ? 1e-5 : type == at::kHalf ? 5e-3 : 5e-2;
      const auto of_type = [&](const at::Tensor& x) { return x.defined() ? ops_run::device().upload(x.to(type)) : x; };
      const auto [found, rows] = attention(of_type(q), of_type(k), of_type(v), of_type(mask), each.causal, 0.3);
      CHECK((found.scalar_type() == type));
      CHECK((rows.scalar_type() == at::kFloat));
      CHECK(largest_difference(found, wanted.detach()) < tolerance);
      CHECK(largest_difference(rows, wanted_rows.detach()) < tolerance);
      // As autograd records it: with all scores.
      const at::Tensor recorded = of_type(q).detach().requires_grad_(true);
      const auto [all, all_rows] = attention(recorded, of_type(k), of_type(v), of_type(mask), each.causal, 0.3);
      CHECK(largest_difference(all.detach(), wanted.detach()) < tolerance);
      CHECK(largest_difference(all_rows.detach(), wanted_rows.detach()) < tolerance);
      const auto [of_q, of_k, of_v] = attention_gradient(of_type(gradient), of_type(q), of_type(k), of_type(v), found,
                                                         rows, of_type(mask), each.causal, 0.3);
      CHECK(largest_difference(of_q, inputs[0].grad()) < 4 * tolerance);
      CHECK(largest_difference(of_k, inputs[1].grad()) < 4 * tolerance);
      CHECK(largest_difference(of_v, inputs[2].grad()) < 4 * tolerance);
      if (each.masked) {
        const at::Tensor of_mask = attention_mask_gradient(of_type(gradient), of_type(q), of_type(k), of_type(v), found,
                                                           rows, of_type(mask), each.causal, 0.3);
        CHECK((of_mask.scalar_type() == type));
        CHECK(largest_difference(of_mask, wide_mask.grad()) < 4 * tolerance);
      }
      const auto again = attention_gradient(of_type(gradient), of_type(q), of_type(k), of_type(v), found, rows,
                                            of_type(mask), each.causal, 0.3);
      CHECK(std::get<0>(again).equal(of_q));
      CHECK(std::get<1>(again).equal(of_k));
      CHECK(std::get<2>(again).equal(of_v));
    }
  }
}

TEST_CASE("a row whose columns are all masked sees nothing, forwards and backwards") {
  // Of float64 LibTorch's operators make all scores.
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor q = drawn({1, 1, 2, 8}, 13).to(type), k = drawn({1, 1, 3, 8}, 14).to(type);
    const at::Tensor mask = at::zeros({1, 1, 2, 3}, type);
    mask[0][0][1].fill_(-INFINITY);
    const auto [found, rows] = attention(q, k, k, mask, false, 1);
    CHECK(found[0][0][1].abs().max().item<double>() == 0);
    CHECK(found[0][0][0].abs().max().item<double>() > 0);
    const auto [of_q, of_k, of_v] = attention_gradient(at::ones_like(found), q, k, k, found, rows, mask, false, 1);
    CHECK(of_q[0][0][1].abs().max().item<double>() == 0);
    CHECK(of_k.isfinite().all().item<bool>());
    CHECK(largest_difference(of_v.sum({0, 1, 2}), at::ones({8}, at::kDouble)) < 1e-6);
  }
}

TEST_CASE("a row that a mask hides with one large number has the weights of its scores, forwards and backwards") {
  // As exports of left-padded prompts have it: the lowest number of the type in every column of a row.
  for (const double hidden : {-1e4, -1e9, static_cast<double>(std::numeric_limits<float>::lowest())}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      CAPTURE(hidden);
      CAPTURE(static_cast<int>(type));
      const at::Tensor q = drawn({1, 2, 3, 8}, 18), k = drawn({1, 2, 5, 8}, 19), v = drawn({1, 2, 5, 8}, 20);
      const at::Tensor mask = at::zeros({1, 1, 3, 5}), gradient = drawn({1, 2, 3, 8}, 21);
      mask[0][0][1].fill_(hidden);
      const auto wide = [&](const at::Tensor& x) { return x.to(at::kDouble).requires_grad_(true); };
      const std::vector<at::Tensor> inputs{wide(q), wide(k), wide(v)};
      // Scores are added to the mask in the type of the attention, where most of them are lost.
      at::Tensor scores = at::matmul(inputs[0], inputs[1].mT());
      scores = scores + ((scores.detach().to(type) + mask.to(type)).to(at::kDouble) - scores.detach());
      const at::Tensor wanted = at::matmul(scores.softmax(-1), inputs[2]);
      wanted.backward(gradient.to(at::kDouble));
      const auto of_type = [&](const at::Tensor& x) { return x.to(type); };
      const auto [found, rows] = attention(of_type(q), of_type(k), of_type(v), of_type(mask), false, 1);
      CHECK(largest_difference(found, wanted.detach()) < 1e-3);
      const auto [of_q, of_k, of_v] = attention_gradient(of_type(gradient), of_type(q), of_type(k), of_type(v), found,
                                                         rows, of_type(mask), false, 1);
      CHECK(largest_difference(of_q, inputs[0].grad()) < 1e-3);
      CHECK(largest_difference(of_k, inputs[1].grad()) < 1e-3);
      CHECK(largest_difference(of_v, inputs[2].grad()) < 1e-3);
    }
  }
}

TEST_CASE("numbers that meet in one element are added in the same order in every run, on GPUs too") {
  const c10::InferenceMode no_autograd;
  const at::Tensor updates = ops_run::device().upload(drawn({1 << 16, 3}, 22));
  const at::Tensor indices = at::arange(updates.size(0)).remainder(7).unsqueeze(1).expand(updates.sizes());
  const at::Tensor places = ops_run::device().upload(indices.contiguous());
  const auto sum = [&] { return runtime::scatter_add(updates.new_zeros({7, 3}), 0, places, updates); };
  const at::Tensor first = sum(), wide = at::zeros({7, 3}, at::kDouble);
  for (int run = 0; run < 8; ++run) CHECK(sum().equal(first));
  CHECK(largest_difference(first, wide.scatter_add(0, indices, updates.cpu().to(at::kDouble))) < 1e-3);
  CHECK(!at::globalContext().deterministicAlgorithms());
}

TEST_CASE("attention is the same with vectors of any width") {
  const HeadSizes sizes{.rows = 70, .columns = 90, .width = 24, .scale = 0.2F, .causal = true};
  const at::Tensor q = drawn({70, 24}, 15), kv = drawn({2, 90, 24}, 16), gradient = drawn({70, 24}, 17);
  const at::Tensor scratch = at::empty({std::max(attention_scratch(sizes), attention_gradient_scratch(sizes))});
  const auto rows_of = [](const at::Tensor& x) { return Rows<const float>{x.const_data_ptr<float>(), x.stride(0)}; };
  const auto results = [&](VectorLevel level) {
    std::vector<at::Tensor> out{at::empty({70, 24}), at::empty({70}), at::empty({70, 24}), at::empty({90, 24}),
                                at::empty({90, 24})};
    const auto into = [&](size_t i) { return Rows<float>{out[i].mutable_data_ptr<float>(), 24}; };
    auto* const logarithms = out[1].mutable_data_ptr<float>();
    auto* const floats = scratch.mutable_data_ptr<float>();
    const Head<float> head{rows_of(q), rows_of(kv[0]), rows_of(kv[1]), {}, into(0), logarithms};
    attend_heads(sizes, std::span(&head, 1), floats, level);
    const HeadGradient<float> of_head{.gradient = rows_of(gradient),
                                      .q = head.q,
                                      .k = head.k,
                                      .v = head.v,
                                      .result = rows_of(out[0]),
                                      .logarithms = logarithms,
                                      .mask = {},
                                      .of_q = into(2),
                                      .of_k = into(3),
                                      .of_v = into(4)};
    differentiate_heads(sizes, std::span(&of_head, 1), floats, level);
    return out;
  };
  const std::vector<at::Tensor> plain = results(VectorLevel::kAny);
  for (const VectorLevel level : {VectorLevel::kAvx2, VectorLevel::kAvx512}) {
    if (level > vector_level()) continue;
    const std::vector<at::Tensor> wide = results(level);
    for (size_t i = 0; i < plain.size(); ++i) {
      CAPTURE(i);
      CHECK(largest_difference(wide[i], plain[i].to(at::kDouble)) < 1e-5);
    }
  }
}

TEST_CASE("rotary turns rows of any width and place in memory, and its gradient is its transposed") {
  const c10::InferenceMode no_autograd;
  for (const int64_t width : {2, 6, 16, 128}) {
    CAPTURE(width);
    // Heads as products leave them, and as they are.
    for (const bool inside : {true, false}) {
      const at::Tensor x = inside ? drawn({2, 5, 3, width}, 30).transpose(1, 2) : drawn({2, 3, 5, width}, 30);
      const at::Tensor cosine = drawn({5, width}, 31), sine = drawn({2, 1, 5, width}, 32);
      const at::Tensor wide = x.to(at::kDouble), cosines = cosine.to(at::kDouble), sines = sine.to(at::kDouble);
      const auto halves = wide.chunk(2, -1);
      const at::Tensor expected = wide * cosines + at::cat({-halves[1], halves[0]}, -1) * sines;
      CHECK(largest_difference(runtime::rotary(x, cosine, sine), expected) < 1e-6);
      CHECK(largest_difference(runtime::rotary(wide, cosines, sines), expected) < 1e-12);
      // <turned(x), y> = <x, back(y)>
      const at::Tensor y = drawn({2, 3, 5, width}, 33), back = runtime::rotary_gradient(y, cosine, sine);
      CHECK((expected * y).sum().item<double>() == doctest::Approx((wide * back).sum().item<double>()).epsilon(1e-5));
      CHECK(largest_difference(back, runtime::rotary_gradient(y.to(at::kDouble), cosines, sines)) < 1e-6);
    }
  }
}

TEST_CASE("attention whose queries share keys is that of repeated keys, and their gradients are summed") {
  const c10::InferenceMode no_autograd;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    CAPTURE(c10::toString(type));
    const auto tensor = [&](int64_t heads, int64_t rows, uint64_t seed) {
      return drawn({2, heads, rows, 24}, seed).to(type);
    };
    const at::Tensor q = tensor(6, 70, 41), k = tensor(2, 90, 42), v = tensor(2, 90, 43), of_result = tensor(6, 70, 44);
    const at::Tensor keys = k.repeat_interleave(3, 1), values = v.repeat_interleave(3, 1);
    const auto [result, rows] = runtime::attention(q, k, v, {}, true, 0.2);
    const auto [expected, logarithms] = runtime::attention(q, keys, values, {}, true, 0.2);
    CHECK(result.equal(expected));
    CHECK(rows.equal(logarithms));
    const auto [of_q, of_k, of_v] = runtime::attention_gradient(of_result, q, k, v, result, rows, {}, true, 0.2);
    const at::Tensor nothing = at::zeros({70, 90}, q.options());
    CHECK(runtime::attention_mask_gradient(of_result, q, k, v, result, rows, nothing, true, 0.2)
              .equal(runtime::attention_mask_gradient(of_result, q, keys, values, result, rows, nothing, true, 0.2)));
    const auto [all_q, all_k, all_v] =
        runtime::attention_gradient(of_result, q, keys, values, result, rows, {}, true, 0.2);
    CHECK(of_q.equal(all_q));
    const auto summed = [](const at::Tensor& all) { return all.to(at::kDouble).unflatten(1, {2, 3}).sum(2); };
    const double rounding = type == at::kBFloat16 ? 0.1 : type == at::kFloat ? 2e-5 : 1e-12;
    CHECK(largest_difference(of_k, summed(all_k)) < rounding);
    CHECK(largest_difference(of_v, summed(all_v)) < rounding);
  }
}

}  // namespace graphpipe::runtime
