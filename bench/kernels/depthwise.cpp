// Depthwise convolutions with loops of our own, against LibTorch's operators.
//
//     taskset -c 1 build/release/bench/depthwise
//
// On one core. The fastest of several rounds of each, which alternate: microseconds by LibTorch and by ours, in float32
// and in bfloat16.

#include "wire/depthwise.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <cstdio>

#include "bench/kernels/fastest_of.h"
#include "runtime/kernels/bfloats.h"
#include "runtime/kernels/depthwise_planes.h"

using namespace graphpipe;

namespace {

struct Layer {
  const char* name;
  int64_t samples, channels, size, kernel, stride, pad;
};
constexpr Layer kLayers[] = {
    {"MobileNet, first", 4, 32, 112, 3, 1, 1},
    {"MobileNet, strides to 56", 4, 96, 112, 3, 2, 1},
    {"MobileNet, 56", 4, 144, 56, 3, 1, 1},
    {"MobileNet, strides to 28", 4, 144, 56, 3, 2, 1},
    {"MobileNet, 28", 4, 192, 28, 3, 1, 1},
    {"MobileNet, 14", 4, 384, 14, 3, 1, 1},
    {"MobileNet, strides to 7", 4, 576, 14, 3, 2, 1},
    {"MobileNet, 7", 4, 960, 7, 3, 1, 1},
    {"MobileNet of 96x96, 3", 8, 960, 3, 3, 1, 1},
    {"EfficientNet, strides to 28", 4, 144, 56, 5, 2, 2},
    {"EfficientNet, 28", 4, 240, 28, 5, 1, 2},
    {"EfficientNet, 14", 4, 480, 14, 5, 1, 2},
    {"EfficientNet, 7", 4, 1152, 7, 5, 1, 2},
    {"ConvNeXt, 56", 4, 96, 56, 7, 1, 3},
    {"ConvNeXt, 28", 4, 192, 28, 7, 1, 3},
    {"ConvNeXt, 14", 4, 384, 14, 7, 1, 3},
    {"ConvNeXt, 7", 4, 768, 7, 7, 1, 3},
};

/// The three passes over a layer, each by LibTorch and by ours.
class Passes {
 public:
  Passes(const Layer& layer, at::ScalarType type) : layer_(layer) {
    const int64_t places = (layer.size + 2 * layer.pad - layer.kernel) / layer.stride + 1;
    shape_ = {.samples = layer.samples,
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
    x_ = at::randn({layer.samples, layer.channels, layer.size, layer.size}).to(type);
    weight_ = at::randn({layer.channels, 1, layer.kernel, layer.kernel}).to(type);
    gradient_ = at::randn({layer.samples, layer.channels, places, places}).to(type);
    made_ = at::empty_like(gradient_), of_x_ = at::empty_like(x_), of_weight_ = at::empty_like(weight_);
  }
  template <typename Element>
  void print() const {
    const auto data = [](const at::Tensor& tensor) { return static_cast<Element*>(tensor.mutable_data_ptr()); };
    print_pair([&] { at::convolution(x_, weight_, {}, strides_, pads_, ones_, false, none_, layer_.channels); },
               [&] { runtime::depthwise_planes<Element>(shape_, data(x_), data(weight_), nullptr, data(made_)); });
    print_pair(
        [&] {
          backward({true, false, false});
        },
        [&] { runtime::depthwise_input_gradient<Element>(shape_, data(gradient_), data(weight_), data(of_x_)); });
    print_pair(
        [&] {
          backward({false, true, false});
        },
        [&] { runtime::depthwise_weights<Element>(shape_, data(x_), data(gradient_), data(of_weight_), false); });
  }

 private:
  void backward(std::array<bool, 3> mask) const {
    at::convolution_backward(gradient_, x_, weight_, at::OptionalIntArrayRef(), strides_, pads_, ones_, false, none_,
                             layer_.channels, mask);
  }
  template <typename Theirs, typename Ours>
  static void print_pair(const Theirs& theirs, const Ours& ours) {
    const auto [their_seconds, our_seconds] = fastest_of(theirs, ours);
    std::printf(" %.0f, %.0f |", 1e6 * their_seconds, 1e6 * our_seconds);
    std::fflush(stdout);
  }

  const Layer& layer_;
  wire::WindowShape shape_;
  at::Tensor x_, weight_, gradient_, made_, of_x_, of_weight_;
  std::array<int64_t, 2> strides_ = {layer_.stride, layer_.stride}, pads_ = {layer_.pad, layer_.pad}, ones_ = {1, 1},
                         none_ = {0, 0};
};

}  // namespace

int main() {
  const c10::InferenceMode no_autograd;
  at::set_num_threads(1);
  std::printf(
      "| layer | kernel | forward, us | input gradient | weight gradient | in bf16: forward | input gradient | "
      "weight gradient |\n|---|---|---|---|---|---|---|---|\n");
  for (const Layer& layer : kLayers) {
    std::printf("| %s | %ld |", layer.name, layer.kernel);
    Passes(layer, at::kFloat).print<float>();
    Passes(layer, at::kBFloat16).print<uint16_t>();
    std::printf("\n");
  }
}
