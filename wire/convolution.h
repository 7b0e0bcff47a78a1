#pragma once
// How convolutions of planes in one group are computed on CPUs: by the runtime, while the compiler keeps the memory
// free that it takes. A function of the shape alone.

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>

#include "support/integer_math.h"
#include "wire/window_shape.h"
#include "wire/winograd.h"

namespace graphpipe::wire {

enum class ConvolutionPass : uint8_t { kForward, kInputGradient, kWeightGradient };

/// Whether a pass is computed as products of the weights by the windows, else by LibTorch. That gives pointwise
/// convolutions to the BLAS, and for the others oneDNN copies weights and activations to orders of its own in each
/// call: dear where a few windows meet many channels, for gradients of what strides skip or of so few channels that its
/// vectors hold mostly zeros, and for those of large weights. But it leaves out what the padding is multiplied with.
/// Measured on an EPYC of the fourth generation, with vectors of 8 and 16 floats (docs/performance.md, "Kernels").
inline bool convolves_by_products(ConvolutionPass pass, const WindowShape& shape, int64_t results) {
  constexpr int64_t kLargeWindow = 512, kLargeWeights = 256 * 512, kLargestWeights = 512 * 512, kFewChannels = 16;
  const bool lie_apart = shape.windows_lie_apart();
  if (shape.is_pointwise() || (lie_apart && shape.rows() >= kLargeWindow)) return true;
  const int64_t windows = shape.windows(), weights = shape.channels * results;
  const bool are_largest = weights >= kLargestWeights;
  if (pass == ConvolutionPass::kWeightGradient) return windows <= 200 || weights >= kLargeWeights;
  if (pass == ConvolutionPass::kForward) return windows <= (are_largest ? 40 : 16);
  if (lie_apart || shape.channels < kFewChannels) return true;
  return windows <= (shape.has_strides() ? 128 : are_largest ? 40 : 4);
}

/// In bfloat16 likewise: oneDNN's convolutions copy weights and activations in each call, its products take weights as
/// they lie. Windows are copied instead, which is dear where many meet few results. Measured on an Intel processor with
/// AMX.
inline bool convolves_bfloats_by_products(ConvolutionPass pass, const WindowShape& shape, int64_t results) {
  const int64_t windows_of_result = pass == ConvolutionPass::kWeightGradient ? 4 : 1;
  if (shape.windows() == 0) return false;
  return shape.is_pointwise() || shape.windows() <= windows_of_result * results;
}

/// Of those, whether each sample is one product that reads its planes as they lie. Else windows are copied to columns:
/// of float32 a block at a time; of bfloat16 all at once, and where there are several samples so are those of weights'
/// gradients, so that their sum is rounded once.
inline bool convolves_whole_planes(const WindowShape& shape) {
  constexpr int64_t kManyPlaces = 64;
  return shape.reads_whole_planes() && (shape.places() >= kManyPlaces || shape.samples == 1);
}

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
  return {of.samples,
          of.channels,
          of.results,
          of.result_height(),
          of.result_width(),
          tile,
          of.pass == ConvolutionPass::kWeightGradient};
}

/// Whether Winograd's method with such tiles may be the fastest. Where planes end inside of many tiles these are mostly
/// empty, below four channels so are vectors, which only large tiles make up for, and for few tiles the transforms of
/// the weights cost more than the products that they save: measured with 512 channels below 32 tiles of 2x2 results and
/// below 16 of 4x4, with 256 below 8 (on an EPYC of the third generation). Not monotone: more samples may fit, and be
/// faster, where fewer do not.
inline bool fits_winograd(const Convolution& of, int64_t tile) {
  constexpr int64_t kWidestPad = 2;
  const int64_t height = of.result_height(), width = of.result_width();
  if (height < 1 || width < 1 || std::max(of.pad_top, of.pad_left) > kWidestPad) return false;
  const int64_t tiles = ceil_div(height, tile) * ceil_div(width, tile);
  // Two thirds of the elements of tiles, at least.
  const bool are_filled = 2 * tile * tile * tiles <= 3 * height * width;
  const int64_t channels_of_tile = tile == 2 ? 40 : 72, fewest_channels = tile == 2 ? 4 : 1;
  return are_filled && std::min(of.channels, of.results) >= fewest_channels &&
         of.samples * tiles * channels_of_tile > of.channels + of.results;
}

/// With tiles of either size.
inline bool fits_winograd(const Convolution& of) { return fits_winograd(of, 2) || fits_winograd(of, 4); }

/// The pass as Winograd's method may compute it, if it may.
inline std::optional<Convolution> winograd_convolution(ConvolutionPass pass, const WindowShape& shape,
                                                       int64_t results) {
  const bool is_three_by_three = shape.kernel_height == 3 && shape.kernel_width == 3;
  const bool is_dense = !shape.has_strides() && shape.step_down == 1 && shape.step_right == 1;
  const Convolution of{.pass = pass,
                       .samples = shape.samples,
                       .channels = shape.channels,
                       .results = results,
                       .height = shape.height,
                       .width = shape.width,
                       .pad_top = shape.pad_top,
                       .pad_left = shape.pad_left};
  return is_three_by_three && is_dense && fits_winograd(of) ? std::optional(of) : std::nullopt;
}

}  // namespace graphpipe::wire
