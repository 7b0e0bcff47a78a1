#pragma once
// How convolutions of planes in one group are computed on CPUs: by the runtime, while the compiler keeps the memory
// free that it takes. A function of the shape alone.

#include <algorithm>
#include <compare>
#include <cstdint>

#include "support/integer_math.h"
#include "wire/winograd.h"

namespace graphpipe::wire {

struct ConvolutionShape {
  int64_t samples = 0;
  /// Places of the kernel in a sample's plane.
  int64_t places = 0;
  /// The kernel is one element.
  bool is_pointwise = false;
  /// Of each sample all elements are read as they lie: pointwise, with strides of one and no padding.
  bool reads_whole_planes = false;
  /// Elements of a window in all channels.
  int64_t window = 1;
  /// No two windows share an element: strides at least as wide as the kernel.
  bool windows_lie_apart = false;
};

/// As a product of the weights by a matrix of the windows, else by LibTorch. That gives pointwise convolutions to the
/// BLAS, and for the others oneDNN copies the weights to an order of its own in each call, which costs more than the
/// products where a few windows meet many channels: below some 200 windows (docs/performance.md, "Kernels"). Patches,
/// large windows that share nothing, are as quick or quicker as columns, which take the memory of their planes with
/// padding.
constexpr bool convolves_by_products(const ConvolutionShape& shape) {
  constexpr int64_t kFewWindows = 200, kLargeWindow = 512;
  const bool are_patches = shape.windows_lie_apart && shape.window >= kLargeWindow;
  return shape.is_pointwise || are_patches || shape.samples * shape.places <= kFewWindows;
}

/// Of those, whether the windows of all samples are copied to one matrix first. Else each sample is a product of its
/// own.
constexpr bool convolves_by_columns(const ConvolutionShape& shape) {
  constexpr int64_t kManyPlaces = 64;
  return !shape.reads_whole_planes || (shape.places < kManyPlaces && shape.samples > 1);
}

enum class ConvolutionPass : uint8_t { kForward, kInputGradient, kWeightGradient };

/// A pass of a convolution with a 3x3 kernel and strides and dilations of one: x [samples, channels, height, width] and
/// weight [results, channels, 3, 3]. Pads apply at both ends.
struct Convolution {
  ConvolutionPass pass = ConvolutionPass::kForward;
  int64_t samples = 0, channels = 0, results = 0, height = 0, width = 0;
  int64_t pad_top = 0, pad_left = 0;
  auto operator<=>(const Convolution&) const = default;

  int64_t result_height() const { return height + 2 * pad_top - 2; }
  int64_t result_width() const { return width + 2 * pad_left - 2; }
};

inline WinogradShape winograd_shape(const Convolution& of, int64_t tile) {
  if (of.pass == ConvolutionPass::kInputGradient)
    return {of.samples, of.results, of.channels, of.height, of.width, tile};
  return {of.samples, of.channels, of.results, of.result_height(), of.result_width(), tile};
}

/// Whether Winograd's method with such tiles may be the fastest. Where planes end inside of many tiles these are mostly
/// empty, below four channels so are vectors, which only large tiles make up for, and for few tiles the transforms of
/// the weights cost more than the products that they save: measured with 512 channels below 64 tiles of 2x2 results (on
/// an EPYC of the third generation) and below 100 of 4x4 (of the fourth), with 256 below 32 and 50. Not monotone: more
/// samples may fit, and be faster, where fewer do not.
inline bool fits_winograd(const Convolution& of, int64_t tile) {
  constexpr int64_t kWidestPad = 2;
  const int64_t height = of.result_height(), width = of.result_width();
  if (height < 1 || width < 1 || std::max(of.pad_top, of.pad_left) > kWidestPad) return false;
  const int64_t tiles = ceil_div(height, tile) * ceil_div(width, tile);
  // Two thirds of the elements of tiles, at least.
  const bool are_filled = 2 * tile * tile * tiles <= 3 * height * width;
  const int64_t channels_of_tile = tile == 2 ? 16 : 12, fewest_channels = tile == 2 ? 4 : 1;
  return are_filled && std::min(of.channels, of.results) >= fewest_channels &&
         of.samples * tiles * channels_of_tile > of.channels + of.results;
}

/// With tiles of either size.
inline bool fits_winograd(const Convolution& of) { return fits_winograd(of, 2) || fits_winograd(of, 4); }

}  // namespace graphpipe::wire
