// Convolutions by products of the weights by the windows, a block at a time, against LibTorch's operators.
//
//     taskset -c 1 build/release/bench/windows
//
// On one core. The fastest of several rounds of each, which alternate: GFLOP/s of the products of the definition, by
// LibTorch and by ours, and a star where a program takes ours (wire/convolution.h).

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <cstdio>

#include "bench/kernels/fastest_of.h"
#include "bench/kernels/layer.h"
#include "runtime/kernels/window_products.h"
#include "wire/convolution.h"

using namespace graphpipe;
using wire::ConvolutionPass;

namespace {

struct NamedLayer {
  const char* name;
  int64_t results;
  SquareWindows windows;
};
constexpr NamedLayer kLayers[] = {
    {"ViT-B/16, patches", 768, {8, 3, 224, 16, 16, 0}},
    {"ViT-L/14, patches", 1024, {8, 3, 224, 14, 14, 0}},
    {"ViT-B/32, patches", 768, {8, 3, 224, 32, 32, 0}},
    {"ConvNeXt, patches", 96, {8, 3, 224, 4, 4, 0}},
    {"ConvNeXt, between stages", 192, {8, 96, 56, 2, 2, 0}},
    {"ResNet, first layer", 64, {8, 3, 224, 7, 2, 3}},
    {"ResNet, strides to the second stage", 128, {8, 64, 56, 3, 2, 1}},
    {"ResNet, strides to the last stage", 512, {8, 256, 14, 3, 2, 1}},
    {"ResNet, shortcut", 512, {8, 256, 56, 1, 2, 0}},
    {"ResNet, last stage, 4 samples", 512, {4, 512, 7, 3, 1, 1}},
    {"ResNet of 64x64, third stage", 256, {8, 256, 4, 3, 1, 1}},
    {"ResNet of 64x64, last stage", 512, {8, 512, 2, 3, 1, 1}},
    {"the same, 2 samples", 512, {2, 512, 2, 3, 1, 1}},
    {"ResNet of 64x64, strides to it", 512, {8, 256, 4, 3, 2, 1}},
    {"5x5, 64 channels", 64, {8, 64, 16, 5, 1, 2}},
};

void print_layer(const NamedLayer& layer) {
  const Layer of(shape_of(layer.windows), layer.results, /*of_groups=*/1, at::kFloat);
  const wire::WindowShape& shape = of.shape;
  const at::Tensor workspace = at::empty({wire::window_floats(shape, layer.results)});
  const runtime::WindowPass pass{shape, layer.results, workspace.mutable_data_ptr<float>()};
  const auto print_pair = [&](ConvolutionPass which, const auto& theirs, const auto& ours) {
    const double products = 2e-9 * static_cast<double>(shape.windows() * shape.rows() * layer.results);
    const auto [their_seconds, our_seconds] = fastest_of(theirs, ours);
    std::printf(" %.0f, %.0f%s |", products / their_seconds, products / our_seconds,
                wire::convolves_by_products(which, shape, layer.results) ? "*" : "");
    std::fflush(stdout);
  };
  const auto data = [](const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); };
  float *const x = data(of.x), *const weights = data(of.weight), *const gradients = data(of.gradient);
  std::printf("| %s | %ld |", layer.name, shape.windows());
  print_pair(
      ConvolutionPass::kForward, [&] { of.forward(); },
      [&] { window_planes(pass, x, weights, nullptr, data(of.made)); });
  print_pair(
      ConvolutionPass::kInputGradient, [&] { of.input_gradient(); },
      [&] { window_input_gradient(pass, gradients, weights, data(of.of_x)); });
  print_pair(
      ConvolutionPass::kWeightGradient, [&] { of.weight_gradient(); },
      [&] { window_weights(pass, x, gradients, data(of.of_weight), /*adds=*/false); });
  std::printf("\n");
}

}  // namespace

int main() {
  const c10::InferenceMode no_autograd;
  at::set_num_threads(1);
  std::printf("| layer | windows | forward, GFLOP/s | input gradient | weight gradient |\n|---|---|---|---|---|\n");
  for (const NamedLayer& layer : kLayers) print_layer(layer);
}
