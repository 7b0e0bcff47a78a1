#pragma once
// The windows of a convolution or a pool of planes, and the blocks of them that the runtime multiplies one after the
// other: so that the compiler can keep their memory free. A function of the shape alone.

#include <algorithm>
#include <cstdint>

#include "support/integer_math.h"

namespace graphpipe::wire {

/// The places of a kernel in planes [samples, channels, height, width]; outside of these are zeros.
struct WindowShape {
  int64_t samples = 0, channels = 0, height = 0, width = 0;
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t stride_down = 1, stride_right = 1;
  int64_t pad_top = 0, pad_left = 0;
  int64_t step_down = 1, step_right = 1;  // dilations
  int64_t places_down = 0, places_right = 0;

  int64_t places() const { return places_down * places_right; }
  int64_t windows() const { return samples * places(); }
  /// Elements of the kernel in one channel.
  int64_t kernel() const { return kernel_height * kernel_width; }
  /// Elements of a window in all channels.
  int64_t rows() const { return channels * kernel(); }
  /// Extents of a window, from its first line to its last, and from its first element of a line.
  int64_t span_down() const { return (kernel_height - 1) * step_down + 1; }
  int64_t span_right() const { return (kernel_width - 1) * step_right + 1; }

  bool is_pointwise() const { return kernel_height == 1 && kernel_width == 1; }
  bool has_strides() const { return stride_down > 1 || stride_right > 1; }
  /// Of each sample all elements are read as they lie.
  bool reads_whole_planes() const { return is_pointwise() && !has_strides() && pad_top == 0 && pad_left == 0; }
  /// No two windows share an element.
  bool windows_lie_apart() const { return stride_down >= span_down() && stride_right >= span_right(); }
};

/// What blocks of windows hold at most: whole samples or lines of one, of so many channels.
struct WindowBlocks {
  int64_t samples = 1, lines = 1, channels = 1;
  int64_t windows(const WindowShape& shape) const { return samples * lines * shape.places_right; }
};

/// Of as even sizes as possible. Needs: a window.
inline WindowBlocks window_blocks(const WindowShape& shape) {
  // One block of a product's inner loop (runtime/kernels/packed_product.h) either way, which is half of a second-level
  // cache of a mebibyte.
  constexpr int64_t kWindows = 384, kRows = 384;
  const auto even = [](int64_t count, int64_t largest) { return ceil_div(count, ceil_div(count, largest)); };
  WindowBlocks blocks{.lines = shape.places_down};
  if (shape.places() <= kWindows) blocks.samples = even(shape.samples, kWindows / shape.places());
  else blocks.lines = even(shape.places_down, std::max<int64_t>(1, kWindows / shape.places_right));
  const int64_t rows = std::min(kRows, kWindows * kRows / blocks.windows(shape));
  blocks.channels = even(shape.channels, std::max<int64_t>(1, rows / shape.kernel()));
  return blocks;
}

/// Floats of a block's windows, one column each. Stops at 2^56, which no machine has: a stranger's model may have a
/// line of any length, and a kernel too.
inline int64_t column_floats(const WindowShape& shape) {
  constexpr int64_t kMaxFloats = int64_t{1} << 56;
  const WindowBlocks blocks = window_blocks(shape);
  const int64_t rows = blocks.channels * shape.kernel(), windows = blocks.windows(shape);
  return windows > kMaxFloats / rows ? kMaxFloats : rows * windows;
}

/// Floats that products of windows by the weights of `results` channels take beside their operands and result: the
/// columns, and where blocks hold several samples their results by channels.
inline int64_t window_floats(const WindowShape& shape, int64_t results) {
  const WindowBlocks blocks = window_blocks(shape);
  return column_floats(shape) + (blocks.samples > 1 ? results * blocks.windows(shape) : 0);
}

}  // namespace graphpipe::wire
