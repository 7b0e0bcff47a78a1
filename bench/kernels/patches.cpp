// Convolutions that cut pictures into patches, whose windows share nothing: LibTorch's operators against products of
// the weights by the windows.
//
//     taskset -c 1 build/release/bench/patches
//
// On one core. The fastest of several rounds of each, which alternate. Ratios above 1: ours is that much faster.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <cstdio>
#include <functional>

#include "bench/kernels/fastest_of.h"
#include "runtime/kernels/convolution.h"

using namespace graphpipe;

namespace {

struct Layer {
  const char* name;
  int64_t patch, results;
};
// Of eight pictures of 224x224.
constexpr Layer kLayers[] = {{"ViT-B/16", 16, 768}, {"ViT-L/14", 14, 1024}, {"ViT-B/32", 32, 768}};

void print_pair(const std::function<void()>& theirs, const std::function<void()>& ours) {
  const auto [slow, fast] = fastest_of(theirs, ours);
  std::printf(" %.1f, %.1f, %.2f |", 1e3 * slow, 1e3 * fast, slow / fast);
  std::fflush(stdout);
}

void print_layer(const Layer& layer) {
  const at::Tensor x = at::randn({8, 3, 224, 224}), weight = at::randn({layer.results, 3, layer.patch, layer.patch});
  const std::array<int64_t, 2> strides = {layer.patch, layer.patch}, none = {0, 0}, ones = {1, 1};
  const runtime::ConvolutionGeometry geometry{strides, none, ones};
  const at::Tensor gradient = at::randn_like(runtime::convolution(x, weight, {}, geometry));
  const auto backward = [&](std::array<bool, 3> mask) {
    at::convolution_backward(gradient, x, weight, at::OptionalIntArrayRef(), strides, none, ones, false, none, 1, mask);
  };
  std::printf("| %s |", layer.name);
  print_pair([&] { at::convolution(x, weight, {}, strides, none, ones, false, none, 1); },
             [&] { runtime::convolution(x, weight, {}, geometry); });
  print_pair(
      [&] {
        backward({true, false, false});
      },
      [&] { runtime::convolution_input_gradient(gradient, x, weight, geometry); });
  print_pair(
      [&] {
        backward({false, true, false});
      },
      [&] { runtime::convolution_weight_gradient(gradient, x, weight, geometry); });
  std::printf("\n");
}

}  // namespace

int main() {
  const c10::InferenceMode no_autograd;
  at::set_num_threads(1);
  std::printf(
      "| patches | forward: LibTorch, ms, ours, ratio | input gradient | weight gradient |\n|---|---|---|---|\n");
  for (const Layer& layer : kLayers) print_layer(layer);
}
