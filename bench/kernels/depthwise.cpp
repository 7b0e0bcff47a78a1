// Depthwise convolutions with loops of our own, against LibTorch's operators.
//
//     taskset -c 1 build/release/bench/depthwise
//
// On one core. The fastest of several rounds of each, which alternate: microseconds by LibTorch and by ours, in float32
// and in bfloat16.

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <cstdio>

#include "bench/kernels/fastest_of.h"
#include "bench/kernels/layer.h"
#include "runtime/kernels/depthwise_planes.h"

using namespace graphpipe;

namespace {

struct NamedLayer {
  const char* name;
  SquareWindows windows;
};
constexpr NamedLayer kLayers[] = {
    {"MobileNet, first", {4, 32, 112, 3, 1, 1}},
    {"MobileNet, strides to 56", {4, 96, 112, 3, 2, 1}},
    {"MobileNet, 56", {4, 144, 56, 3, 1, 1}},
    {"MobileNet, strides to 28", {4, 144, 56, 3, 2, 1}},
    {"MobileNet, 28", {4, 192, 28, 3, 1, 1}},
    {"MobileNet, 14", {4, 384, 14, 3, 1, 1}},
    {"MobileNet, strides to 7", {4, 576, 14, 3, 2, 1}},
    {"MobileNet, 7", {4, 960, 7, 3, 1, 1}},
    {"MobileNet of 96x96, 3", {8, 960, 3, 3, 1, 1}},
    {"EfficientNet, strides to 28", {4, 144, 56, 5, 2, 2}},
    {"EfficientNet, 28", {4, 240, 28, 5, 1, 2}},
    {"EfficientNet, 14", {4, 480, 14, 5, 1, 2}},
    {"EfficientNet, 7", {4, 1152, 7, 5, 1, 2}},
    {"ConvNeXt, 56", {4, 96, 56, 7, 1, 3}},
    {"ConvNeXt, 28", {4, 192, 28, 7, 1, 3}},
    {"ConvNeXt, 14", {4, 384, 14, 7, 1, 3}},
    {"ConvNeXt, 7", {4, 768, 7, 7, 1, 3}},
};

template <typename Theirs, typename Ours>
void print_pair(const Theirs& theirs, const Ours& ours) {
  const auto [their_seconds, our_seconds] = fastest_of(theirs, ours);
  std::printf(" %.0f, %.0f |", 1e6 * their_seconds, 1e6 * our_seconds);
  std::fflush(stdout);
}

/// The three passes over a layer.
template <typename Element>
void print_passes(const SquareWindows& windows, at::ScalarType type) {
  const Layer of(shape_of(windows), windows.channels, /*of_groups=*/windows.channels, type);
  const auto data = [](const at::Tensor& tensor) { return static_cast<Element*>(tensor.mutable_data_ptr()); };
  Element *const x = data(of.x), *const weight = data(of.weight), *const gradient = data(of.gradient);
  print_pair([&] { of.forward(); },
             [&] { runtime::depthwise_planes<Element>(of.shape, x, weight, nullptr, data(of.made)); });
  print_pair([&] { of.input_gradient(); },
             [&] { runtime::depthwise_input_gradient<Element>(of.shape, gradient, weight, data(of.of_x)); });
  print_pair([&] { of.weight_gradient(); },
             [&] { runtime::depthwise_weights<Element>(of.shape, x, gradient, data(of.of_weight), /*adds=*/false); });
}

}  // namespace

int main() {
  const c10::InferenceMode no_autograd;
  at::set_num_threads(1);
  std::printf(
      "| layer | kernel | forward, us | input gradient | weight gradient | in bf16: forward | input gradient | "
      "weight gradient |\n|---|---|---|---|---|---|---|---|\n");
  for (const auto& [name, windows] : kLayers) {
    std::printf("| %s | %ld |", name, windows.kernel);
    print_passes<float>(windows, at::kFloat);
    print_passes<uint16_t>(windows, at::kBFloat16);
    std::printf("\n");
  }
}
