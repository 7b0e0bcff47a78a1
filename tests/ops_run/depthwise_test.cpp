// Depthwise convolutions by loops of our own, against LibTorch's in float64.

#include "wire/depthwise.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/full_like.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <vector>

#include "runtime/kernels/average_pool.h"
#include "runtime/kernels/depthwise_convolution.h"
#include "runtime/kernels/depthwise_planes.h"
#include "tests/ops_run/drawn.h"

namespace graphpipe::runtime {
namespace {

using Pair = std::array<int64_t, 2>;

struct DepthwiseCase {
  int64_t samples, channels;
  Pair size, kernel, strides, pads, dilations;
};
constexpr DepthwiseCase kDepthwiseCases[] = {
    // Lines of less than half a vector, of one, of several; fewer lines than go together, and not a multiple of them.
    {3, 5, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 4, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, {14, 14}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},
    {2, 3, {6, 19}, {7, 7}, {1, 1}, {3, 3}, {1, 1}},
    {1, 2, {1, 1}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, {2, 33}, {3, 5}, {1, 1}, {1, 2}, {1, 1}},
    // Several blocks of lines, the last of them smaller.
    {2, 3, {57, 50}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 2, {131, 40}, {5, 3}, {2, 2}, {2, 1}, {1, 1}},
    // Strides: with lines and columns that no window reaches, unequal, larger than the kernel.
    {2, 3, {14, 14}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
    {2, 3, {15, 13}, {5, 5}, {2, 2}, {2, 2}, {1, 1}},
    {3, 2, {11, 17}, {3, 2}, {3, 4}, {0, 1}, {1, 1}},
    {2, 2, {9, 10}, {1, 1}, {2, 3}, {0, 0}, {1, 1}},
    {2, 3, {12, 9}, {7, 3}, {2, 1}, {3, 0}, {1, 1}},
    // Dilations, alone and with strides; heights without a loop of their own; pads wider than the planes.
    {2, 3, {12, 11}, {3, 3}, {1, 1}, {2, 2}, {2, 2}},
    {2, 3, {16, 15}, {3, 3}, {2, 2}, {2, 3}, {2, 3}},
    {2, 2, {13, 12}, {6, 9}, {1, 1}, {2, 4}, {1, 1}},
    {2, 2, {3, 2}, {3, 3}, {1, 1}, {4, 5}, {1, 1}},
    {1, 2, {4, 4}, {9, 9}, {1, 1}, {4, 4}, {1, 1}},
    {2, 2, {40, 41}, {16, 16}, {1, 1}, {7, 7}, {1, 1}},
    // No pads: fewer places than columns.
    {2, 3, {10, 10}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
};

wire::WindowShape shape_of(const DepthwiseCase& c) {
  return window_shape({c.samples, c.channels, c.size[0], c.size[1]}, {c.channels, 1, c.kernel[0], c.kernel[1]},
                      {c.strides, c.pads, c.dilations});
}

/// What LibTorch computes in float64, and what the loops do.
struct DepthwisePasses {
  at::Tensor result, of_x, of_weight;
};

template <typename Element>
DepthwisePasses by_loops(const DepthwiseCase& c, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                         const at::Tensor& gradient) {
  const wire::WindowShape shape = shape_of(c);
  const auto data = [](const at::Tensor& tensor) { return static_cast<Element*>(tensor.mutable_data_ptr()); };
  // Set to what no sum may keep.
  const auto unset = [](const at::Tensor& like) {
    return at::full_like(like, std::numeric_limits<double>::quiet_NaN());
  };
  const DepthwisePasses made{unset(gradient), unset(x), unset(w)};
  depthwise_planes<Element>(shape, data(x), data(w), data(bias), data(made.result));
  depthwise_input_gradient<Element>(shape, data(gradient), data(w), data(made.of_x));
  depthwise_weights<Element>(shape, data(x), data(gradient), data(made.of_weight), /*adds=*/false);
  depthwise_weights<Element>(shape, data(x), data(gradient), data(made.of_weight), /*adds=*/true);
  return made;
}

template <typename Element>
void check_loops(const DepthwiseCase& c, at::ScalarType type, double tolerance) {
  constexpr Pair kNone = {0, 0};
  REQUIRE(wire::fits_depthwise(shape_of(c)));
  const at::Tensor x = drawn({c.samples, c.channels, c.size[0], c.size[1]}, 1).to(type);
  const at::Tensor w = drawn({c.channels, 1, c.kernel[0], c.kernel[1]}, 2).to(type),
                   bias = drawn({c.channels}, 3).to(type);
  const at::Tensor expected = at::convolution(x.to(at::kDouble), w.to(at::kDouble), bias.to(at::kDouble), c.strides,
                                              c.pads, c.dilations, false, kNone, c.channels);
  const at::Tensor gradient = drawn(expected.sizes(), 4).to(type);
  const auto [of_x, of_w, none] =
      at::convolution_backward(gradient.to(at::kDouble), x.to(at::kDouble), w.to(at::kDouble), std::nullopt, c.strides,
                               c.pads, c.dilations, false, kNone, c.channels, {true, true, false});
  const DepthwisePasses made = by_loops<Element>(c, x, w, bias, gradient);
  CHECK(relative_difference(made.result, expected) < tolerance);
  CHECK(relative_difference(made.of_x, of_x) < tolerance);
  CHECK(relative_difference(made.of_weight, 2 * of_w) < tolerance);
}

}  // namespace

TEST_CASE("depthwise convolutions and both their gradients are those in float64, to the precision of their type") {
  const c10::InferenceMode no_autograd;
  for (const DepthwiseCase& c : kDepthwiseCases) {
    CAPTURE(c.size[0]);
    CAPTURE(c.size[1]);
    CAPTURE(c.kernel[0]);
    check_loops<float>(c, at::kFloat, 2e-6);
    check_loops<uint16_t>(c, at::kBFloat16, 1e-2);
  }
}

TEST_CASE("the number of threads changes no bit of a depthwise convolution") {
  const c10::InferenceMode no_autograd;
  const DepthwiseCase c = {3, 70, {30, 31}, {5, 5}, {2, 2}, {2, 2}, {1, 1}};
  const at::Tensor x = drawn({c.samples, c.channels, c.size[0], c.size[1]}, 1);
  const at::Tensor w = drawn({c.channels, 1, 5, 5}, 2), bias = drawn({c.channels}, 3);
  const wire::WindowShape shape = shape_of(c);
  const at::Tensor gradient = drawn({c.samples, c.channels, shape.places_down, shape.places_right}, 4);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const DepthwisePasses by_one = by_loops<float>(c, x, w, bias, gradient);
  at::set_num_threads(3);
  const DepthwisePasses by_three = by_loops<float>(c, x, w, bias, gradient);
  at::set_num_threads(before);
  CHECK(by_one.result.equal(by_three.result));
  CHECK(by_one.of_x.equal(by_three.of_x));
  CHECK(by_one.of_weight.equal(by_three.of_weight));
}

TEST_CASE("planes whose channels come last have the gradients of those where they lie apart, and keep them last") {
  const c10::InferenceMode no_autograd;
  for (const DepthwiseCase& of : kDepthwiseCases)
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      DepthwiseCase c = of;
      c.channels = 37;
      CAPTURE(c.size[0]);
      CAPTURE(c.kernel[0]);
      const ConvolutionGeometry geometry{c.strides, c.pads, c.dilations};
      const at::Tensor x = drawn({c.samples, c.channels, c.size[0], c.size[1]}, 1).to(type);
      const at::Tensor w = drawn({c.channels, 1, c.kernel[0], c.kernel[1]}, 2).to(type);
      const at::Tensor result = depthwise_convolution(x, w, {}, geometry), gradient = drawn(result.sizes(), 3).to(type);
      const auto last = [](const at::Tensor& planes) { return planes.contiguous(at::MemoryFormat::ChannelsLast); };
      const double tolerance = type == at::kFloat ? 2e-6 : 2e-2;
      CHECK(relative_difference(depthwise_convolution(last(x), w, {}, geometry), result.to(at::kDouble)) < tolerance);
      at::Tensor sum = depthwise_convolution_weight_gradient(last(gradient), last(x), w, geometry);
      const at::Tensor expected = depthwise_convolution_weight_gradient(gradient, x, w, geometry).to(at::kDouble);
      CHECK(relative_difference(sum, expected) < tolerance);
      add_depthwise_convolution_weight_gradient(sum, last(gradient), last(x), w, geometry);
      CHECK(relative_difference(sum, 2 * expected) < tolerance);
    }
  const at::Tensor planes = drawn({2, 32, 9, 9}, 1).contiguous(at::MemoryFormat::ChannelsLast);
  const int64_t ones[] = {1, 1};
  CHECK(depthwise_convolution(planes, drawn({32, 1, 3, 3}, 2), {}, {ones, ones, ones})
            .is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST_CASE("depthwise convolutions of lines are those of planes of one line") {
  const c10::InferenceMode no_autograd;
  const int64_t strides[] = {1}, pads[] = {3}, ones[] = {1}, none[] = {0};
  const ConvolutionGeometry geometry{strides, pads, ones};
  const at::Tensor x = drawn({2, 6, 50}, 1), w = drawn({6, 1, 4}, 2), bias = drawn({6}, 3);
  const at::Tensor expected = at::convolution(x, w, bias, strides, pads, ones, false, none, 6);
  const at::Tensor gradient = drawn(expected.sizes(), 4);
  const auto [of_x, of_w, skipped] =
      at::convolution_backward(gradient, x, w, std::nullopt, strides, pads, ones, false, none, 6, {true, true, false});
  CHECK(at::allclose(depthwise_convolution(x, w, bias, geometry), expected, 1e-5, 1e-5));
  CHECK(at::allclose(depthwise_convolution_input_gradient(gradient, x, w, geometry), of_x, 1e-5, 1e-5));
  at::Tensor sum = depthwise_convolution_weight_gradient(gradient, x, w, geometry);
  CHECK(at::allclose(sum, of_w, 1e-5, 1e-4));
  add_depthwise_convolution_weight_gradient(sum, gradient, x, w, geometry);
  CHECK(at::allclose(sum, 2 * of_w, 1e-5, 1e-4));
}

TEST_CASE("averages over windows and their gradients are LibTorch's to rounding") {
  const c10::InferenceMode no_autograd;
  const std::optional<int64_t> counts, three = 3;
  for (const DepthwiseCase& c : {DepthwiseCase{2, 3, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {}},
                                 {2, 3, {9, 8}, {3, 2}, {2, 2}, {1, 1}, {}},
                                 {1, 2, {7, 12}, {2, 2}, {2, 2}, {0, 0}, {}},
                                 {2, 2, {1, 30}, {1, 3}, {1, 2}, {0, 1}, {}}})
    for (const bool counts_pads : {false, true})
      for (const bool rounds_up : {false, true})
        for (const std::optional<int64_t>& divisor : {counts, three}) {
          CAPTURE(c.size[0]);
          CAPTURE(counts_pads);
          const at::Tensor x = drawn({c.samples, c.channels, c.size[0], c.size[1]}, 1);
          const at::Tensor expected = at::avg_pool2d(x, c.kernel, c.strides, c.pads, rounds_up, counts_pads, divisor);
          const at::Tensor gradient = drawn(expected.sizes(), 2);
          CHECK(relative_difference(average_pool_2d(x, c.kernel, c.strides, c.pads, rounds_up, counts_pads, divisor),
                                    expected.to(at::kDouble)) < 1e-6);
          const at::Tensor of_x =
              at::avg_pool2d_backward(gradient, x, c.kernel, c.strides, c.pads, rounds_up, counts_pads, divisor);
          CHECK(relative_difference(
                    average_pool_2d_gradient(gradient, x, c.kernel, c.strides, c.pads, rounds_up, counts_pads, divisor),
                    of_x.to(at::kDouble)) < 1e-6);
        }
}

TEST_CASE("the blocks of all passes that the loops take fit into a thread's memory") {
  int64_t taken = 0;
  for (const int64_t kernel : {3, 7, 11})
    for (const int64_t stride : {1, 2, 3, 5})
      for (int64_t dilation = 1; dilation <= 24; ++dilation)
        for (int64_t size = (kernel - 1) * dilation + 1; size <= 300; ++size) {
          const Pair strides = {stride, stride}, dilations = {dilation, dilation};
          const wire::WindowShape shape = shape_of({1, 1, {size, size}, {kernel, kernel}, strides, {0, 0}, dilations});
          if (!wire::fits_depthwise(shape)) continue;
          ++taken;
          const wire::DepthwiseLayout layout = wire::depthwise_layout(shape);
          for (const int64_t lines : {shape.places_down, layout.down.length()})
            REQUIRE(layout.floats(layout.lines_of_block(lines)) <= wire::kMaxDepthwiseFloats);
        }
  CHECK(taken > 1000);
}

TEST_CASE("kernels and lines that fit no thread's memory, and absurd sizes, are left to LibTorch") {
  const wire::WindowShape fits = shape_of({1, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  REQUIRE(wire::fits_depthwise(fits));
  const auto with = [&](int64_t wire::WindowShape::*member, int64_t value) {
    wire::WindowShape shape = fits;
    shape.*member = value;
    return wire::fits_depthwise(shape);
  };
  constexpr int64_t kHuge = int64_t{1} << 62;
  for (int64_t wire::WindowShape::*member :
       {&wire::WindowShape::width, &wire::WindowShape::places_right, &wire::WindowShape::kernel_height,
        &wire::WindowShape::kernel_width, &wire::WindowShape::stride_down, &wire::WindowShape::stride_right,
        &wire::WindowShape::pad_top, &wire::WindowShape::pad_left, &wire::WindowShape::step_down,
        &wire::WindowShape::step_right})
    CHECK_FALSE(with(member, kHuge));
  CHECK_FALSE(with(&wire::WindowShape::width, 20000));
  CHECK_FALSE(with(&wire::WindowShape::places_down, 0));
  CHECK_FALSE(with(&wire::WindowShape::samples, 0));
}

}  // namespace graphpipe::runtime
