// Convolutions by products of the weights by the windows, a block at a time, against LibTorch's operators.
//
//     taskset -c 1 build/release/bench/windows
//
// On one core. The fastest of several rounds of each, which alternate: GFLOP/s of the products of the definition, by
// LibTorch and by ours, and a star where a program takes ours (wire/convolution.h).

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <cstdio>

#include "bench/kernels/fastest_of.h"
#include "runtime/kernels/window_products.h"
#include "wire/convolution.h"

using namespace graphpipe;
using wire::ConvolutionPass;

namespace {

struct Layer {
  const char* name;
  int64_t samples, channels, results, size, kernel, stride, pad;
};
constexpr Layer kLayers[] = {
    {"ViT-B/16, patches", 8, 3, 768, 224, 16, 16, 0},
    {"ViT-L/14, patches", 8, 3, 1024, 224, 14, 14, 0},
    {"ViT-B/32, patches", 8, 3, 768, 224, 32, 32, 0},
    {"ConvNeXt, patches", 8, 3, 96, 224, 4, 4, 0},
    {"ConvNeXt, between stages", 8, 96, 192, 56, 2, 2, 0},
    {"ResNet, first layer", 8, 3, 64, 224, 7, 2, 3},
    {"ResNet, strides to the second stage", 8, 64, 128, 56, 3, 2, 1},
    {"ResNet, strides to the last stage", 8, 256, 512, 14, 3, 2, 1},
    {"ResNet, shortcut", 8, 256, 512, 56, 1, 2, 0},
    {"ResNet, last stage, 4 samples", 4, 512, 512, 7, 3, 1, 1},
    {"ResNet of 64x64, third stage", 8, 256, 256, 4, 3, 1, 1},
    {"ResNet of 64x64, last stage", 8, 512, 512, 2, 3, 1, 1},
    {"the same, 2 samples", 2, 512, 512, 2, 3, 1, 1},
    {"ResNet of 64x64, strides to it", 8, 256, 512, 4, 3, 2, 1},
    {"5x5, 64 channels", 8, 64, 64, 16, 5, 1, 2},
};

wire::WindowShape shape_of(const Layer& layer) {
  const int64_t places = (layer.size + 2 * layer.pad - layer.kernel) / layer.stride + 1;
  return {.samples = layer.samples,
          .channels = layer.channels,
          .height = layer.size,
          .width = layer.size,
          .kernel_height = layer.kernel,
          .kernel_width = layer.kernel,
          .stride_down = layer.stride,
          .stride_right = layer.stride,
          .pad_top = layer.pad,
          .pad_left = layer.pad,
          .places_down = places,
          .places_right = places};
}

void print_layer(const Layer& layer) {
  const wire::WindowShape shape = shape_of(layer);
  const at::Tensor x = at::randn({layer.samples, layer.channels, layer.size, layer.size});
  const at::Tensor weight = at::randn({layer.results, layer.channels, layer.kernel, layer.kernel});
  const at::Tensor gradient = at::randn({layer.samples, layer.results, shape.places_down, shape.places_right});
  at::Tensor made = at::empty_like(gradient), of_x = at::empty_like(x), of_weight = at::empty_like(weight);
  const at::Tensor workspace = at::empty({wire::window_floats(shape, layer.results)});
  const runtime::WindowPass pass{shape, layer.results, workspace.mutable_data_ptr<float>()};
  const std::array<int64_t, 2> strides = {layer.stride, layer.stride}, pads = {layer.pad, layer.pad}, ones = {1, 1},
                               none = {0, 0};
  const auto backward = [&](std::array<bool, 3> mask) {
    at::convolution_backward(gradient, x, weight, at::OptionalIntArrayRef(), strides, pads, ones, false, none, 1, mask);
  };
  const auto print_pair = [&](ConvolutionPass of, const auto& theirs, const auto& ours) {
    const double products = 2e-9 * static_cast<double>(shape.windows() * shape.rows() * layer.results);
    const auto [their_seconds, our_seconds] = fastest_of(theirs, ours);
    std::printf(" %.0f, %.0f%s |", products / their_seconds, products / our_seconds,
                wire::convolves_by_products(of, shape, layer.results) ? "*" : "");
    std::fflush(stdout);
  };
  const auto* const weights = weight.const_data_ptr<float>();
  const auto *const elements = x.const_data_ptr<float>(), *const gradients = gradient.const_data_ptr<float>();
  std::printf("| %s | %ld |", layer.name, shape.windows());
  print_pair(
      ConvolutionPass::kForward, [&] { at::convolution(x, weight, {}, strides, pads, ones, false, none, 1); },
      [&] { window_planes(pass, elements, weights, nullptr, made.mutable_data_ptr<float>()); });
  print_pair(
      ConvolutionPass::kInputGradient,
      [&] {
        backward({true, false, false});
      },
      [&] { window_input_gradient(pass, gradients, weights, of_x.mutable_data_ptr<float>()); });
  print_pair(
      ConvolutionPass::kWeightGradient,
      [&] {
        backward({false, true, false});
      },
      [&] { window_weights(pass, elements, gradients, of_weight.mutable_data_ptr<float>(), /*adds=*/false); });
  std::printf("\n");
}

}  // namespace

int main() {
  const c10::InferenceMode no_autograd;
  at::set_num_threads(1);
  std::printf("| layer | windows | forward, GFLOP/s | input gradient | weight gradient |\n|---|---|---|---|---|\n");
  for (const Layer& layer : kLayers) print_layer(layer);
}
