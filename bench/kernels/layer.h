#pragma once
// A convolution of square planes with square kernels, as a layer of a network has it: its shape, its operands, and the
// three passes over them by LibTorch's operators.

#include <ATen/Functions.h>

#include <array>
#include <cstdint>

#include "wire/window_shape.h"

namespace graphpipe {

struct SquareWindows {
  int64_t samples, channels, size, kernel, stride, pad;
};

inline wire::WindowShape shape_of(const SquareWindows& of) {
  const int64_t places = (of.size + 2 * of.pad - of.kernel) / of.stride + 1;
  return {.samples = of.samples,
          .channels = of.channels,
          .height = of.size,
          .width = of.size,
          .kernel_height = of.kernel,
          .kernel_width = of.kernel,
          .stride_down = of.stride,
          .stride_right = of.stride,
          .pad_top = of.pad,
          .pad_left = of.pad,
          .places_down = places,
          .places_right = places};
}

struct Layer {
  wire::WindowShape shape;
  int64_t groups;
  at::Tensor x, weight, gradient;
  /// Where a kernel writes: the result, and the gradients of x and of the weight.
  at::Tensor made, of_x, of_weight;

  /// With operands drawn at random.
  Layer(const wire::WindowShape& of, int64_t results, int64_t of_groups, at::ScalarType type)
      : shape(of),
        groups(of_groups),
        x(at::randn({of.samples, of.channels, of.height, of.width}).to(type)),
        weight(at::randn({results, of.channels / of_groups, of.kernel_height, of.kernel_width}).to(type)),
        gradient(at::randn({of.samples, results, of.places_down, of.places_right}).to(type)),
        made(at::empty_like(gradient)),
        of_x(at::empty_like(x)),
        of_weight(at::empty_like(weight)) {}

  void forward() const { at::convolution(x, weight, {}, strides(), pads(), kOnes, false, kNone, groups); }
  void input_gradient() const { backward({true, false, false}); }
  void weight_gradient() const { backward({false, true, false}); }

 private:
  using Pair = std::array<int64_t, 2>;
  static constexpr Pair kOnes = {1, 1}, kNone = {0, 0};

  Pair strides() const { return {shape.stride_down, shape.stride_right}; }
  Pair pads() const { return {shape.pad_top, shape.pad_left}; }
  void backward(std::array<bool, 3> mask) const {
    at::convolution_backward(gradient, x, weight, at::OptionalIntArrayRef(), strides(), pads(), kOnes, false, kNone,
                             groups, mask);
  }
};

}  // namespace graphpipe
