#pragma once
// The windows of a convolution as a matrix, and back: one column for each place of the kernel in each sample's plane,
// one row for each channel and element of the kernel. Padding is zeros.

#include <cstdint>

#include "wire/window_shape.h"

namespace graphpipe::runtime {

using wire::WindowShape;

/// The places in [0, places) with first + place * stride in [0, size).
struct PlaceRange {
  int64_t begin = 0, end = 0;
};
PlaceRange places_inside(int64_t first, int64_t stride, int64_t size, int64_t places);

/// Windows of some samples, of some lines of places, and their rows of some channels.
struct WindowBlock {
  int64_t first_sample = 0, samples = 0;
  int64_t first_line = 0, lines = 0;
  int64_t first_channel = 0, channels = 0;

  int64_t windows(const WindowShape& shape) const { return samples * lines * shape.places_right; }
  int64_t rows(const WindowShape& shape) const { return channels * shape.kernel(); }
};

/// planes [samples, channels, height, width] to columns [rows, windows] of the block: of floats or, by their bits, of
/// bfloat16.
void windows_to_columns(const WindowShape& shape, const WindowBlock& block, const float* planes, float* columns);
void windows_to_columns(const WindowShape& shape, const WindowBlock& block, const uint16_t* planes, uint16_t* columns);
/// Adds each element of the block's columns to the plane element that it was taken from.
void add_columns_to_planes(const WindowShape& shape, const WindowBlock& block, const float* columns, float* planes);
void add_columns_to_planes(const WindowShape& shape, const WindowBlock& block, const uint16_t* columns, float* planes);

}  // namespace graphpipe::runtime
