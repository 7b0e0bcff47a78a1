// The kernels of convolutions and pools of planes, against LibTorch's own operators.

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/kernels/batch_norm.h"
#include "runtime/kernels/bfloats.h"
#include "runtime/kernels/convolution.h"
#include "runtime/kernels/kernel_choice.h"
#include "runtime/kernels/max_pool.h"
#include "runtime/kernels/region.h"
#include "runtime/kernels/windows.h"
#include "runtime/kernels/winograd.h"
#include "runtime/reference/run_together.h"
#include "tests/ops_run/drawn.h"
#include "wire/convolution.h"

namespace graphpipe::runtime {
namespace {

using Pair = std::array<int64_t, 2>;

struct PlaneCase {
  int64_t samples, channels, results;
  Pair size, kernel, strides, pads, dilations;
};
// Few windows and many, pointwise with few places and many, strided, in unequal directions, of one sample; patches.
constexpr PlaneCase kPlanes[] = {{3, 16, 24, {4, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 {2, 8, 12, {7, 6}, {3, 2}, {2, 1}, {1, 0}, {1, 2}},
                                 {4, 64, 96, {2, 2}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 {2, 6, 10, {9, 9}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                                 {3, 16, 8, {5, 4}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                                 {2, 16, 8, {8, 8}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},
                                 {1, 16, 32, {3, 3}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                                 {2, 4, 6, {3, 3}, {1, 1}, {1, 1}, {1, 2}, {1, 1}},
                                 {2, 128, 160, {4, 4}, {5, 5}, {3, 3}, {2, 2}, {1, 1}},
                                 {2, 3, 8, {20, 20}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 {3, 3, 10, {140, 140}, {14, 14}, {14, 14}, {0, 0}, {1, 1}},
                                 {2, 4, 6, {183, 150}, {12, 12}, {13, 12}, {0, 1}, {1, 1}},
                                 // Strided, of few channels and of several blocks of lines, samples and channels.
                                 {2, 3, 9, {61, 50}, {7, 7}, {2, 2}, {3, 3}, {1, 1}},
                                 {2, 90, 20, {50, 49}, {3, 3}, {2, 3}, {1, 0}, {1, 1}},
                                 {50, 90, 6, {9, 8}, {3, 2}, {2, 2}, {1, 1}, {1, 2}},
                                 {1, 2, 5, {4, 1203}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                                 // For Winograd's method: lines of one tile to three vectors, uneven sizes, all pads,
                                 // several blocks, channels that fill no vector, no panel and no group of rows.
                                 {3, 5, 7, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 {2, 20, 18, {34, 47}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 {4, 3, 32, {16, 20}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 {4, 17, 1, {12, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 {5, 4, 9, {7, 3}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
                                 {9, 6, 6, {2, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 {2, 12, 4, {6, 5}, {3, 3}, {1, 1}, {2, 1}, {1, 1}},
                                 {3, 8, 16, {17, 15}, {3, 3}, {1, 1}, {0, 2}, {1, 1}},
                                 {1, 70, 37, {30, 33}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 {4, 130, 96, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 // The same for tiles of 4x4 results, which most of those do not fit.
                                 {5, 4, 9, {6, 5}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
                                 {2, 12, 4, {6, 10}, {3, 3}, {1, 1}, {2, 1}, {1, 1}},
                                 {1, 6, 5, {8, 70}, {3, 3}, {1, 1}, {1, 2}, {1, 1}},
                                 {6, 9, 19, {7, 15}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 // For both, of tiles that are in memory together, and weights that are so in parts.
                                 {2, 37, 50, {7, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 {1, 64, 41, {12, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}};

constexpr wire::ConvolutionKernel kKernels[] = {wire::ConvolutionKernel::kDirect, wire::ConvolutionKernel::kWinograd2,
                                                wire::ConvolutionKernel::kWinograd4};

/// The passes of a case that fit the kernel by it, until it is destroyed.
class Forced {
 public:
  Forced(const PlaneCase& c, wire::ConvolutionKernel kernel) {
    wire::ProductTable table{.threads = at::get_num_threads()};
    using enum wire::ConvolutionPass;
    if (c.kernel != Pair{3, 3} || c.strides != Pair{1, 1}) return;
    for (const wire::ConvolutionPass pass : {kForward, kInputGradient, kWeightGradient}) {
      const wire::Convolution of{pass, c.samples, c.channels, c.results, c.size[0], c.size[1], c.pads[0], c.pads[1]};
      if (wire::fits_kernel(of, kernel)) table.convolutions.push_back({of, kernel});
    }
    take_measured_kernels(wire::print_product_table(table));
  }
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;
  ~Forced() { take_measured_kernels({}); }
};

std::vector<at::Tensor> passes_of(const PlaneCase& c) {
  const ConvolutionGeometry geometry{c.strides, c.pads, c.dilations};
  const at::Tensor x = drawn({c.samples, c.channels, c.size[0], c.size[1]}, 1);
  const at::Tensor w = drawn({c.results, c.channels, c.kernel[0], c.kernel[1]}, 2);
  const at::Tensor result = convolution(x, w, {}, geometry), gradient = drawn(result.sizes(), 3);
  return {result, convolution_input_gradient(gradient, x, w, geometry),
          convolution_weight_gradient(gradient, x, w, geometry)};
}

WindowShape shape_of(const PlaneCase& c) {
  const auto places = [&](size_t axis) {
    return (c.size[axis] + 2 * c.pads[axis] - c.dilations[axis] * (c.kernel[axis] - 1) - 1) / c.strides[axis] + 1;
  };
  return {.samples = c.samples,
          .channels = c.channels,
          .height = c.size[0],
          .width = c.size[1],
          .kernel_height = c.kernel[0],
          .kernel_width = c.kernel[1],
          .stride_down = c.strides[0],
          .stride_right = c.strides[1],
          .pad_top = c.pads[0],
          .pad_left = c.pads[1],
          .step_down = c.dilations[0],
          .step_right = c.dilations[1],
          .places_down = places(0),
          .places_right = places(1)};
}

void check_convolution(const PlaneCase& c) {
  constexpr Pair kNone = {0, 0};
  CAPTURE(c.channels);
  CAPTURE(c.size[0]);
  const ConvolutionGeometry geometry{c.strides, c.pads, c.dilations};
  const at::Tensor x = drawn({c.samples, c.channels, c.size[0], c.size[1]}, 1);
  const at::Tensor w = drawn({c.results, c.channels, c.kernel[0], c.kernel[1]}, 2);
  const at::Tensor bias = drawn({c.results}, 3);
  const at::Tensor wide_x = x.to(at::kDouble), wide_w = w.to(at::kDouble);
  const auto convolve = [&](const at::Tensor& b) {
    return at::convolution(wide_x, wide_w, b, c.strides, c.pads, c.dilations, false, kNone, 1);
  };
  const at::Tensor expected = convolve(bias.to(at::kDouble)), found = convolution(x, w, bias, geometry);
  CHECK(relative_difference(found, expected) < 2e-6);
  CHECK(relative_difference(convolution(x, w, {}, geometry), convolve({})) < 2e-6);
  // Rows that do not lie together too: channels last.
  const at::Tensor gradient = drawn(found.sizes(), 4).contiguous(at::MemoryFormat::ChannelsLast);
  const auto [of_x, of_w, none] =
      at::convolution_backward(gradient.to(at::kDouble), wide_x, wide_w, std::nullopt, c.strides, c.pads, c.dilations,
                               false, kNone, 1, {true, true, false});
  CHECK(relative_difference(convolution_input_gradient(gradient, x, w, geometry), of_x) < 2e-6);
  at::Tensor sum = convolution_weight_gradient(gradient, x, w, geometry);
  CHECK(relative_difference(sum, of_w) < 2e-6);
  for (int share = 1; share < 3; ++share) add_convolution_weight_gradient(sum, gradient, x, w, geometry);
  CHECK(relative_difference(sum, of_w * 3) < 4e-6);
}

}  // namespace

TEST_CASE("convolutions of planes and both their gradients are those in float64, by each kernel") {
  const c10::InferenceMode no_autograd;
  for (const PlaneCase& c : kPlanes)
    for (const wire::ConvolutionKernel kernel : kKernels) {
      if (kernel != wire::ConvolutionKernel::kDirect && !has_winograd()) continue;
      const Forced forced(c, kernel);
      check_convolution(c);
    }
}

TEST_CASE("convolutions of planes in bfloat16 and their gradients are the rounded ones of float64") {
  const c10::InferenceMode no_autograd;
  constexpr Pair kNone = {0, 0};
  // Half a unit in the last place, once or twice. Where LibTorch computes a pass without oneDNN it rounds each sample's
  // share of the weights' gradient, and each sum over windows.
  constexpr double kRounding = 1.0 / 256, kManyRoundings = 0.03;
  std::vector<PlaneCase> cases(std::begin(kPlanes), std::end(kPlanes));
  for (const int64_t size : {3, 8, 9}) cases.push_back({3, 20, 24, {size, size}, {1, 1}, {1, 1}, {0, 0}, {1, 1}});
  for (const PlaneCase& c : cases) {
    CAPTURE(c.channels);
    CAPTURE(c.size[0]);
    const auto rounding_of = [&](wire::ConvolutionPass pass) {
      return wire::convolves_bfloats_by_products(pass, shape_of(c), c.results) ? kRounding : kManyRoundings;
    };
    const ConvolutionGeometry geometry{c.strides, c.pads, c.dilations};
    const auto drawn_bfloats = [](at::IntArrayRef sizes, int seed) { return drawn(sizes, seed).to(at::kBFloat16); };
    const at::Tensor x = drawn_bfloats({c.samples, c.channels, c.size[0], c.size[1]}, 1);
    const at::Tensor w = drawn_bfloats({c.results, c.channels, c.kernel[0], c.kernel[1]}, 2);
    const at::Tensor bias = drawn_bfloats({c.results}, 3), wide_x = x.to(at::kDouble), wide_w = w.to(at::kDouble);
    const at::Tensor expected =
        at::convolution(wide_x, wide_w, bias.to(at::kDouble), c.strides, c.pads, c.dilations, false, kNone, 1);
    CHECK(relative_difference(convolution(x, w, bias, geometry), expected) < kRounding);
    const at::Tensor gradient = drawn_bfloats(expected.sizes(), 4).contiguous(at::MemoryFormat::ChannelsLast);
    const auto [of_x, of_w, none] =
        at::convolution_backward(gradient.to(at::kDouble), wide_x, wide_w, std::nullopt, c.strides, c.pads, c.dilations,
                                 false, kNone, 1, {true, true, false});
    CHECK(relative_difference(convolution_input_gradient(gradient, x, w, geometry), of_x) <
          rounding_of(wire::ConvolutionPass::kInputGradient));
    at::Tensor sum = convolution_weight_gradient(gradient, x, w, geometry);
    const double of_sum = rounding_of(wire::ConvolutionPass::kWeightGradient);
    CHECK((sum.scalar_type() == at::kBFloat16));
    CHECK(relative_difference(sum, of_w) < of_sum);
    add_convolution_weight_gradient(sum, gradient, x, w, geometry);
    CHECK(relative_difference(sum, of_w * 2) < of_sum);
  }
}

TEST_CASE("the number of threads changes no bit of a convolution by own loops") {
  if (!has_winograd()) return;
  const c10::InferenceMode no_autograd;
  using enum wire::ConvolutionKernel;
  // By Winograd's method; by products of windows: of few channels, of few windows, and of what strides skip.
  const std::pair<PlaneCase, wire::ConvolutionKernel> cases[] = {
      {{2, 20, 18, {34, 47}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, kWinograd2},
      {{2, 20, 18, {34, 47}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, kWinograd4},
      {{2, 37, 50, {7, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, kWinograd4},
      {{2, 3, 40, {61, 50}, {7, 7}, {2, 2}, {3, 3}, {1, 1}}, kDirect},
      {{3, 130, 150, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {2, 2}}, kDirect},
      {{2, 64, 70, {24, 24}, {1, 1}, {2, 2}, {0, 0}, {1, 1}}, kDirect}};
  const int before = at::get_num_threads();
  for (const auto& [c, kernel] : cases) {
    CAPTURE(c.channels);
    std::vector<at::Tensor> results[2];
    for (const int threads : {1, 3}) {
      at::set_num_threads(threads);
      const Forced forced(c, kernel);
      results[threads / 2] = passes_of(c);
    }
    at::set_num_threads(before);
    for (size_t i = 0; i < results[0].size(); ++i) CHECK(results[0][i].equal(results[1][i]));
  }
}

TEST_CASE("a table of kernels decides between Winograd's method and the others") {
  if (!has_winograd()) return;
  const PlaneCase& c = {8, 64, 64, {16, 16}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  const wire::Convolution wide{wire::ConvolutionPass::kForward, 8, 64, 64, 16, 16, 1, 1};
  CHECK(wire::fits_winograd(wide));
  CHECK(choose_convolution_kernel(wide) == wire::ConvolutionKernel::kWinograd4);  // by the rule
  const at::Tensor x = drawn({8, 64, 16, 16}, 1), w = drawn({64, 64, 3, 3}, 2);
  const auto computed_by = [&](wire::ConvolutionKernel kernel) {
    const Forced forced(c, kernel);
    CHECK(choose_convolution_kernel(wide) == kernel);
    return convolution(x, w, {}, {c.strides, c.pads, c.dilations});
  };
  const at::Tensor direct = computed_by(wire::ConvolutionKernel::kDirect);
  const at::Tensor small_tiles = computed_by(wire::ConvolutionKernel::kWinograd2);
  CHECK_FALSE(direct.equal(small_tiles));
  CHECK_FALSE(small_tiles.equal(computed_by(wire::ConvolutionKernel::kWinograd4)));
}

/// All of the windows, divided by samples, lines and channels.
std::vector<WindowBlock> eighths_of(const WindowShape& shape) {
  std::vector<WindowBlock> blocks = {
      {.samples = shape.samples, .lines = shape.places_down, .channels = shape.channels}};
  const auto divide = [&](int64_t WindowBlock::*first, int64_t WindowBlock::*count) {
    std::vector<WindowBlock> halves;
    for (const WindowBlock& whole : blocks) {
      WindowBlock lower = whole, upper = whole;
      lower.*count = (whole.*count + 1) / 2;
      upper.*first += lower.*count;
      upper.*count -= lower.*count;
      halves.push_back(lower);
      if (upper.*count > 0) halves.push_back(upper);
    }
    blocks = std::move(halves);
  };
  divide(&WindowBlock::first_sample, &WindowBlock::samples);
  divide(&WindowBlock::first_line, &WindowBlock::lines);
  divide(&WindowBlock::first_channel, &WindowBlock::channels);
  return blocks;
}

TEST_CASE("windows are LibTorch's columns, and adding them back is their transposition") {
  const c10::InferenceMode no_autograd;
  for (const PlaneCase& c : kPlanes) {
    const at::Tensor x = drawn({c.samples, c.channels, c.size[0], c.size[1]}, 5);
    const WindowShape shape = shape_of(c);
    const at::Tensor expected = at::im2col(x, c.kernel, c.dilations, c.pads, c.strides);
    const at::Tensor by_places = expected.view({c.samples, shape.rows(), shape.places_down, shape.places_right});
    at::Tensor planes = at::zeros(x.sizes(), at::kFloat);
    for (const WindowBlock& block : eighths_of(shape)) {
      at::Tensor columns = at::full({block.rows(shape), block.windows(shape)}, std::nan(""), at::kFloat);
      windows_to_columns(shape, block, x.const_data_ptr<float>(), columns.mutable_data_ptr<float>());
      const at::Tensor part = by_places.narrow(0, block.first_sample, block.samples)
                                  .narrow(1, block.first_channel * shape.kernel(), block.rows(shape))
                                  .narrow(2, block.first_line, block.lines);
      CHECK(columns.equal(part.transpose(0, 1).flatten(1)));
      at::Tensor bfloat_columns = new_bfloats(columns.sizes());
      windows_to_columns(shape, block, bits_of(x.to(at::kBFloat16)), mutable_bits_of(bfloat_columns));
      CHECK(bfloat_columns.equal(columns.to(at::kBFloat16)));
      add_columns_to_planes(shape, block, columns.const_data_ptr<float>(), planes.mutable_data_ptr<float>());
    }
    const at::Tensor back = at::col2im(expected, c.size, c.kernel, c.dilations, c.pads, c.strides);
    CHECK(relative_difference(planes, back.to(at::kDouble)) < 1e-6);
  }
}

TEST_CASE("windows of planes without elements are padding, and give nothing back") {
  const WindowShape shape = shape_of({2, 3, 1, {0, 4}, {3, 3}, {1, 1}, {2, 2}, {1, 1}});
  const WindowBlock all{.samples = shape.samples, .lines = shape.places_down, .channels = shape.channels};
  at::Tensor columns = at::ones({shape.rows(), shape.windows()});
  windows_to_columns(shape, all, static_cast<const float*>(nullptr), columns.mutable_data_ptr<float>());
  CHECK(columns.eq(0).all().item<bool>());
  add_columns_to_planes(shape, all, columns.const_data_ptr<float>(), nullptr);
}

TEST_CASE("maxima of windows and their places are LibTorch's to the bit, with ties, infinities and NaNs") {
  const c10::InferenceMode no_autograd;
  for (const PlaneCase& c : {PlaneCase{2, 3, 0, {13, 11}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                             {2, 2, 0, {8, 9}, {2, 3}, {1, 3}, {1, 0}, {1, 2}},
                             {1, 4, 0, {6, 600}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
                             {1, 2, 0, {5, 700}, {2, 2}, {1, 1}, {1, 1}, {2, 2}},
                             // Without strides, of planes whose copies fit and do not.
                             {2, 3, 0, {13, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                             {2, 2, 0, {9, 5}, {5, 2}, {1, 1}, {2, 1}, {1, 1}},
                             {1, 2, 0, {12, 10}, {3, 3}, {1, 1}, {0, 1}, {2, 3}},
                             {1, 2, 0, {61, 62}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},
                             {1, 2, 0, {66, 62}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}})
    for (const bool rounds_up : {false, true}) {
      at::Tensor x = drawn({c.samples, c.channels, c.size[0], c.size[1]}, 6).mul_(2).round_();
      x.select(2, 1).fill_(-std::numeric_limits<float>::infinity());
      x.select(2, 2).fill_(-std::numeric_limits<float>::infinity());
      x.select(3, 4).fill_(std::numeric_limits<float>::quiet_NaN());
      const auto [maxima, places] = max_pool_2d(x, c.kernel, c.strides, c.pads, c.dilations, rounds_up);
      const auto [expected, expected_places] =
          at::max_pool2d_with_indices(x, c.kernel, c.strides, c.pads, c.dilations, rounds_up);
      CHECK(places.equal(expected_places));
      CHECK(maxima.nan_to_num(123).equal(expected.nan_to_num(123)));
      const auto [bfloats, same_places] =
          max_pool_2d(x.to(at::kBFloat16), c.kernel, c.strides, c.pads, c.dilations, rounds_up);
      CHECK(same_places.equal(expected_places));
      CHECK(bfloats.nan_to_num(123).equal(expected.to(at::kBFloat16).nan_to_num(123)));
    }
}

TEST_CASE(
    "BatchNorm and its gradients are those in float64, far from zero too, and running statistics move as LibTorch's") {
  const c10::InferenceMode no_autograd;
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{6, 5},
                                            {3, 4, 7},
                                            {2, 3, 9, 11},
                                            {1, 2, 2, 3, 3},
                                            {200, 600},
                                            {70, 90, 3},
                                            {5, 300, 7, 7},
                                            {9, 10, 8, 8}}) {
    const at::Tensor x = drawn(sizes, 7).add_(30), gradient = drawn(sizes, 8);
    const at::Tensor scale = drawn({sizes[1]}, 9), bias = drawn({sizes[1]}, 10);
    const at::Tensor mean = drawn({sizes[1]}, 11), variance = drawn({sizes[1]}, 12).square_();
    const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
    at::Tensor wide_mean = wide(mean), wide_variance = wide(variance);
    const auto [y, batch_mean, inverse] = batch_norm(x, scale, bias, mean, variance, 0.3, 1e-5);
    const auto [wide_y, wide_batch_mean, wide_inverse] =
        at::native_batch_norm(wide(x), wide(scale), wide(bias), wide_mean, wide_variance, /*training=*/true, 0.3, 1e-5);
    CHECK(relative_difference(y, wide_y) < 2e-5);
    CHECK(relative_difference(batch_mean, wide_batch_mean) < 1e-6);
    CHECK(relative_difference(inverse, wide_inverse) < 2e-5);
    CHECK(relative_difference(mean, wide_mean) < 1e-6);
    CHECK(relative_difference(variance, wide_variance) < 2e-5);
    const auto [of_x, of_scale, of_bias] =
        batch_norm_backward(gradient, x, scale, batch_mean, inverse, 1e-5, {true, true, true});
    const auto [wide_of_x, wide_of_scale, wide_of_bias] =
        at::native_batch_norm_backward(wide(gradient), wide(x), wide(scale), {}, {}, wide_batch_mean, wide_inverse,
                                       /*train=*/true, 1e-5, {true, true, true});
    CHECK(relative_difference(of_x, wide_of_x) < 2e-5);
    CHECK(relative_difference(of_scale, wide_of_scale) < 2e-5);
    CHECK(relative_difference(of_bias, wide_of_bias) < 1e-6);
    CHECK_FALSE(std::get<0>(batch_norm_backward(gradient, x, scale, batch_mean, inverse, 1e-5, {false, true, false}))
                    .defined());
  }
}

TEST_CASE("BatchNorm of replicas is that of all their samples, and each has the same statistics") {
  const c10::InferenceMode no_autograd;
  // Loops on floats; LibTorch's operators on doubles.
  for (const auto& [type, tolerance] : {std::pair{at::kFloat, 2e-5}, {at::kDouble, 1e-12}})
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{6, 5}, {7, 4, 7}, {3, 3, 9, 11}, {3, 2, 1, 1}}) {
      const at::Tensor x = drawn(sizes, 7).add_(30).to(type), gradient = drawn(sizes, 8).to(type);
      const at::Tensor scale = drawn({sizes[1]}, 9).to(type), bias = drawn({sizes[1]}, 10).to(type);
      const auto running = [&] { return at::zeros({sizes[1]}, type); };
      const at::Tensor mean = running(), variance = running();
      const auto [y, batch_mean, inverse] = batch_norm(x, scale, bias, mean, variance, 0.3, 1e-5);
      const auto [of_x, of_scale, of_bias] =
          batch_norm_backward(gradient, x, scale, batch_mean, inverse, 1e-5, {true, true, true});
      struct Replica {
        at::Tensor y, mean, variance, batch_mean, inverse, of_x, of_scale, of_bias;
      };
      std::vector<Replica> replicas(3);
      std::vector<std::function<void(ReplicaExchange&)>> parts;
      for (size_t r = 0; r < replicas.size(); ++r)
        parts.emplace_back([&, r, type = type](ReplicaExchange& others) {
          const auto first = static_cast<int64_t>(r) * sizes[0] / 3, last = static_cast<int64_t>(r + 1) * sizes[0] / 3;
          const auto own = [&](const at::Tensor& all) { return all.slice(0, first, last).contiguous(); };
          Replica& replica = replicas[r];
          replica.mean = running();
          replica.variance = running();
          std::tie(replica.y, replica.batch_mean, replica.inverse) =
              batch_norm(own(x), scale, bias, replica.mean, replica.variance, 0.3, 1e-5, &others);
          std::tie(replica.of_x, replica.of_scale, replica.of_bias) = batch_norm_backward(
              own(gradient), own(x), scale, replica.batch_mean, replica.inverse, 1e-5, {true, true, true}, &others);
        });
      run_together(*open_cpu(), parts);
      CHECK(relative_difference(at::cat({replicas[0].y, replicas[1].y, replicas[2].y}), y) < tolerance);
      CHECK(relative_difference(at::cat({replicas[0].of_x, replicas[1].of_x, replicas[2].of_x}), of_x) < tolerance);
      CHECK(relative_difference(replicas[0].of_scale + replicas[1].of_scale + replicas[2].of_scale, of_scale) <
            tolerance);
      CHECK(relative_difference(replicas[0].of_bias + replicas[1].of_bias + replicas[2].of_bias, of_bias) < tolerance);
      CHECK(relative_difference(replicas[0].mean, mean) < tolerance);
      CHECK(relative_difference(replicas[0].variance, variance) < tolerance);
      for (const Replica& other : replicas) {
        CHECK(other.mean.equal(replicas[0].mean));
        CHECK(other.variance.equal(replicas[0].variance));
        CHECK(other.inverse.equal(replicas[0].inverse));
      }
    }
}

TEST_CASE("a replica that fails ends the others, which wait for its sums") {
  const std::vector<std::function<void(ReplicaExchange&)>> parts = {
      [](ReplicaExchange& others) { others.gather(std::vector<double>{1}); },
      [](ReplicaExchange&) { throw std::runtime_error("no memory"); }};
  CHECK_THROWS_WITH(run_together(*open_cpu(), parts), "no memory");
}

TEST_CASE("the mean of a large plane is exact where all its elements are the same") {
  const at::Tensor x = at::full({2, 1, 512, 512}, 0.1F), one = at::ones({1});
  const auto [result, mean, inverse] = batch_norm(x, one, at::zeros({1}), {}, {}, 0.1, 1e-5);
  CHECK(std::abs(mean.item<double>() - 0.1) < 1e-6);
  CHECK(result.abs().max().item<double>() < 5e-4);
}

TEST_CASE("a region that would be read at millions of places is refused") {
  const at::Tensor x = at::ones({1, 1, 8, 8});
  const auto read = [&](float far) {
    return region_values(x, at::tensor({0.F, 0.F, far, far}).reshape({1, 4}), {},
                         {.height = 2, .width = 2, .per_sample = 1});
  };
  CHECK(read(100).numel() == 4);
  CHECK_THROWS_AS(read(48000), c10::Error);
  CHECK_THROWS_AS(read(9e5), c10::Error);
}

}  // namespace graphpipe::runtime
