#pragma once
// The windows of a convolution as a matrix, and back: one column for each place of the kernel in each sample's plane,
// one row for each channel and element of the kernel. Padding is zeros.

#include <cstdint>

namespace graphpipe::runtime {

struct WindowShape {
  int64_t samples = 0, channels = 0, height = 0, width = 0;
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t stride_down = 1, stride_right = 1;
  int64_t pad_top = 0, pad_left = 0;
  int64_t step_down = 1, step_right = 1;  // dilations
  int64_t places_down = 0, places_right = 0;

  int64_t places() const { return places_down * places_right; }
  int64_t windows() const { return samples * places(); }
  /// Extents of a window, from its first line to its last, and from its first element of a line.
  int64_t span_down() const { return (kernel_height - 1) * step_down + 1; }
  int64_t span_right() const { return (kernel_width - 1) * step_right + 1; }
  int64_t rows() const { return channels * kernel_height * kernel_width; }
};

/// The places in [0, places) with first + place * stride in [0, size).
struct PlaceRange {
  int64_t begin = 0, end = 0;
};
PlaceRange places_inside(int64_t first, int64_t stride, int64_t size, int64_t places);

/// planes [samples, channels, height, width] to columns [rows, windows].
void windows_to_columns(const WindowShape& shape, const float* planes, float* columns);
/// Adds each element of the columns to the plane element that it was taken from.
void add_columns_to_planes(const WindowShape& shape, const float* columns, float* planes);

}  // namespace graphpipe::runtime
