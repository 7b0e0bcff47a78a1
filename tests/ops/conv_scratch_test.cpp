#include <doctest/doctest.h>

#include <algorithm>

#include "tests/support/one_node.h"

namespace graphpipe::ops {
namespace {

using testing::f32;
using testing::fixed;
using testing::OneNode;

constexpr double kByProducts = -1;

struct Measured {
  int64_t channels, results, size, stride, kernel;
  // Most bytes that PyTorch 2.11's memory profiler saw beside the results, for two samples.
  double forward, input_gradient, weight_gradient;
};
// conv2d and convolution_backward on float32 [2, channels, size, size], padded by kernel / 2, one thread, AVX-512.
constexpr Measured kMeasured[] = {
    {3, 64, 64, 2, 7, 524288, kByProducts, 524288},
    {64, 128, 28, 2, 3, 696320, 802816, 602112},
    {64, 64, 28, 1, 3, 548864, 548864, 802816},
    {3, 8, 12, 1, 3, 18432, 42624, 19296},
};
// What the runtime multiplies itself (wire/window_shape.h), counted by hand: a block of channels * kernel^2 by windows,
// and where it holds both samples their results or gradients by channels.
constexpr Measured kMultiplied[] = {
    {64, 256, 28, 1, 1, 0, 0, 0},
    {256, 512, 14, 2, 1, 301056, 301056, 301056},
    {16, 32, 4, 2, 3, 5632, 5632, 5632},
    {3, 768, 224, 16, 16, 230400, 230400, 230400},
};

// The same in bfloat16: whole planes; all columns, planes by channels, and for the input's gradient float32 sums.
constexpr Measured kMultipliedBfloats[] = {
    {64, 256, 28, 1, 1, 0, 0, 1003520},
    {256, 512, 14, 2, 1, 150528, 551936, 150528},
    {512, 512, 2, 1, 3, 81920, 98304, 81920},
};

double scratch(const char* op, const std::vector<ir::TensorType>& inputs, const ir::TensorType& output,
               const Measured& of) {
  OneNode one(op, inputs, {{"strides", std::vector<int64_t>{of.stride, of.stride}}});
  one.node.outputs.push_back(one.graph.add_input({.name = ModelText("y")}, {.type = output}));
  return find_op(op)->work(NodeView(one.graph, one.node), Samples(2)).scratch;
}

struct Phases {
  double forward, input_gradient, weight_gradient;
};

Phases predicted_of(const Measured& of, ir::DType type = ir::DType::kFloat32) {
  const int64_t out = (of.size + 2 * (of.kernel / 2) - of.kernel) / of.stride + 1;
  const ir::TensorType x{type, {ir::Dim::batch(), fixed(of.channels), fixed(of.size), fixed(of.size)}};
  const ir::TensorType y{type, {ir::Dim::batch(), fixed(of.results), fixed(out), fixed(out)}};
  const ir::TensorType w{type, {fixed(of.results), fixed(of.channels), fixed(of.kernel), fixed(of.kernel)}};
  return {scratch("Conv", {x, w}, y, of), scratch("ConvGradInput", {y, w}, x, of),
          scratch("ConvGradWeight", {y, x, w}, w, of)};
}

TEST_CASE("the scratch of a convolution that is multiplied is a block of columns and activations by channels") {
  const auto check = [](const Measured& of, const Phases& predicted) {
    CAPTURE(of.channels);
    CHECK(predicted.forward == of.forward);
    CHECK(predicted.input_gradient == of.input_gradient);
    CHECK(predicted.weight_gradient == of.weight_gradient);
  };
  for (const Measured& of : kMultiplied) check(of, predicted_of(of));
  for (const Measured& of : kMultipliedBfloats) check(of, predicted_of(of, ir::DType::kBFloat16));
}

TEST_CASE("the scratch of a convolution is never less than what LibTorch allocates for it, and not four times it") {
  // What Winograd's method may take of a few channels is more, and as little.
  constexpr double kLittle = 96 * 1024;
  for (const Measured& of : kMeasured) {
    CAPTURE(of.channels);
    CAPTURE(of.size);
    const Phases phases_of = predicted_of(of);
    const double phases[][2] = {{phases_of.forward, of.forward},
                                {phases_of.input_gradient, of.input_gradient},
                                {phases_of.weight_gradient, of.weight_gradient}};
    for (const auto& [predicted, measured] : phases) {
      if (measured == kByProducts) continue;
      CHECK(predicted >= measured);
      CHECK(predicted <= std::max(4 * measured, kLittle));
    }
  }
}

}  // namespace
}  // namespace graphpipe::ops
