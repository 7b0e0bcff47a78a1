#pragma once
// How convolutions of planes in one group are computed on CPUs: by the runtime, while the compiler keeps the memory
// free that it takes. A function of the shape alone.

#include <cstdint>

namespace graphpipe::wire {

struct ConvolutionShape {
  int64_t samples = 0;
  /// Places of the kernel in a sample's plane.
  int64_t places = 0;
  /// The kernel is one element.
  bool is_pointwise = false;
  /// Of each sample all elements are read as they lie: pointwise, with strides of one and no padding.
  bool reads_whole_planes = false;
};

/// As a product of the weights by a matrix of the windows, else by LibTorch. That gives pointwise convolutions to the
/// BLAS, and for the others oneDNN copies the weights to an order of its own in each call, which costs more than the
/// products where a few windows meet many channels: below some 200 windows (docs/performance.md, "Kernels").
constexpr bool convolves_by_products(const ConvolutionShape& shape) {
  constexpr int64_t kFewWindows = 200;
  return shape.is_pointwise || shape.samples * shape.places <= kFewWindows;
}

/// Of those, whether the windows of all samples are copied to one matrix first. Else each sample is a product of its
/// own.
constexpr bool convolves_by_columns(const ConvolutionShape& shape) {
  constexpr int64_t kManyPlaces = 64;
  return !shape.reads_whole_planes || (shape.places < kManyPlaces && shape.samples > 1);
}

}  // namespace graphpipe::wire
