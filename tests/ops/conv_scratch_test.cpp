#include <doctest/doctest.h>

#include "tests/support/one_node.h"

namespace graphpipe::ops {
namespace {

using testing::f32;
using testing::fixed;
using testing::OneNode;

struct Measured {
  int64_t channels, results, size, stride, kernel;
  // Most bytes that PyTorch 2.11's memory profiler saw beside the results, for two samples.
  double forward, input_gradient, weight_gradient;
};
// conv2d and convolution_backward on float32 [2, channels, size, size], padded by kernel / 2, one thread, AVX-512.
constexpr Measured kMeasured[] = {
    {3, 64, 64, 2, 7, 524288, 1073176, 524288},   {64, 128, 28, 2, 3, 696320, 802816, 602112},
    {64, 64, 28, 1, 3, 548864, 548864, 802816},   {64, 256, 28, 1, 1, 0, 0, 0},
    {256, 512, 14, 2, 1, 976000, 860184, 627328}, {12, 24, 20, 2, 3, 25600, 76800, 73856},
    {3, 8, 12, 1, 3, 18432, 42624, 19296},        {16, 32, 8, 2, 3, 26624, 59416, 18432},
};

double scratch(const char* op, const std::vector<ir::TensorType>& inputs, const ir::TensorType& output,
               const Measured& of) {
  OneNode one(op, inputs, {{"strides", std::vector<int64_t>{of.stride, of.stride}}});
  one.node.outputs.push_back(one.graph.add_input({.name = ModelText("y")}, {.type = output}));
  return find_op(op)->work(NodeView(one.graph, one.node), Samples(2)).scratch;
}

TEST_CASE("the scratch of a convolution is never less than what LibTorch allocates for it, and not four times it") {
  for (const Measured& of : kMeasured) {
    CAPTURE(of.channels);
    CAPTURE(of.size);
    const int64_t out = (of.size + 2 * (of.kernel / 2) - of.kernel) / of.stride + 1;
    const ir::TensorType x = f32({ir::Dim::batch(), fixed(of.channels), fixed(of.size), fixed(of.size)});
    const ir::TensorType y = f32({ir::Dim::batch(), fixed(of.results), fixed(out), fixed(out)});
    const ir::TensorType w = f32({fixed(of.results), fixed(of.channels), fixed(of.kernel), fixed(of.kernel)});
    const double phases[][2] = {{scratch("Conv", {x, w}, y, of), of.forward},
                                {scratch("ConvGradInput", {y, w}, x, of), of.input_gradient},
                                {scratch("ConvGradWeight", {y, x, w}, w, of), of.weight_gradient}};
    for (const auto& [predicted, measured] : phases) {
      CHECK(predicted >= measured);
      CHECK(predicted <= 4 * measured);
    }
  }
}

}  // namespace
}  // namespace graphpipe::ops
