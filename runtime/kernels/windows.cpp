#include "runtime/kernels/windows.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>

#include "runtime/kernels/vector_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

namespace graphpipe::runtime {

PlaceRange places_inside(int64_t first, int64_t stride, int64_t size, int64_t places) {
  const int64_t begin = first >= 0 ? 0 : std::min(ceil_div(-first, stride), places);
  const int64_t end = first >= size ? 0 : (size - 1 - first) / stride + 1;
  return {begin, std::clamp(end, begin, places)};
}

namespace {

/// Calls line(first column, plane element of the line's first place, range of the places that lie inside) for each line
/// of places of one of the block's rows.
template <typename Line>
GRAPHPIPE_INLINE void for_each_line(const WindowShape& shape, const WindowBlock& block, int64_t row, const Line& line) {
  const int64_t channel = block.first_channel + row / shape.kernel();
  const int64_t down = row / shape.kernel_width % shape.kernel_height, right = row % shape.kernel_width;
  const int64_t left = right * shape.step_right - shape.pad_left;
  const PlaceRange inside = places_inside(left, shape.stride_right, shape.width, shape.places_right);
  int64_t column = 0;
  for (int64_t sample = block.first_sample; sample < block.first_sample + block.samples; ++sample) {
    const int64_t plane = (sample * shape.channels + channel) * shape.height * shape.width;
    for (int64_t place = block.first_line; place < block.first_line + block.lines; ++place) {
      const int64_t y = place * shape.stride_down + down * shape.step_down - shape.pad_top;
      const bool is_inside = y >= 0 && y < shape.height;
      line(column, plane + y * shape.width + left, is_inside ? inside : PlaceRange{});
      column += shape.places_right;
    }
  }
}

/// Calls `work` with the stride between a line's places, as a constant where that is worth a loop of its own.
template <typename Work>
GRAPHPIPE_INLINE void with_stride(int64_t stride, const Work& work) {
  if (stride == 1) work(std::integral_constant<int64_t, 1>{});
  else if (stride == 2) work(std::integral_constant<int64_t, 2>{});
  else work(stride);
}

/// Rows [begin, end) of the block.
struct Rows {
  const WindowShape& shape;
  const WindowBlock& block;
  int64_t begin, end;
};

template <typename Element>
GRAPHPIPE_INLINE void read_rows(const Rows& rows, const Element* planes, Element* columns) {
  const WindowShape& shape = rows.shape;
  with_stride(
      shape.stride_right, [&](auto stride) __attribute__((always_inline)) {
        for (int64_t row = rows.begin; row < rows.end; ++row) {
          Element* const to = columns + row * rows.block.windows(shape);
          for_each_line(
              shape, rows.block,
              row, [&](int64_t column, int64_t from, PlaceRange inside) __attribute__((always_inline)) {
                Element* const places = to + column;
                for (int64_t i = 0; i < inside.begin; ++i) places[i] = 0;
                for (int64_t i = inside.begin; i < inside.end; ++i) places[i] = planes[from + i * stride];
                for (int64_t i = inside.end; i < shape.places_right; ++i) places[i] = 0;
              });
        }
      });
}

template <typename Element>
GRAPHPIPE_INLINE void add_rows(const Rows& rows, const Element* columns, float* planes) {
  const WindowShape& shape = rows.shape;
  with_stride(
      shape.stride_right, [&](auto stride) __attribute__((always_inline)) {
        for (int64_t row = rows.begin; row < rows.end; ++row) {
          const Element* const from = columns + row * rows.block.windows(shape);
          for_each_line(
              shape, rows.block,
              row, [&](int64_t column, int64_t to, PlaceRange inside) __attribute__((always_inline)) {
                for (int64_t i = inside.begin; i < inside.end; ++i)
                  planes[to + i * stride] += widened(from[column + i]);
              });
        }
      });
}

// --- of lines so short that what surrounds a loop over one takes longer than the loop ---

/// Places of a line at most, and of a sample's windows for all elements of the kernel.
constexpr int64_t kShortLine = 8, kMaxTaps = 2048;

bool has_short_lines(const WindowShape& shape, const WindowBlock& block) {
  const int64_t elements = shape.height * shape.width;
  return elements > 0 && elements <= std::numeric_limits<int32_t>::max() && shape.places_right <= kShortLine &&
         shape.kernel() <= kMaxTaps / (block.lines * shape.places_right);
}

/// For each element of the kernel and each place of a sample's windows: the element of the plane, and whether it lies
/// inside; else it is the first.
struct Taps {
  int32_t offset[kMaxTaps], is_inside[kMaxTaps];

  GRAPHPIPE_INLINE Taps(const WindowShape& shape, const WindowBlock& block) {
    int64_t i = 0;
    for (int64_t k = 0; k < shape.kernel(); ++k)
      for (int64_t line = block.first_line; line < block.first_line + block.lines; ++line)
        for (int64_t place = 0; place < shape.places_right; ++place, ++i) {
          const int64_t y = line * shape.stride_down + k / shape.kernel_width * shape.step_down - shape.pad_top;
          const int64_t x = place * shape.stride_right + k % shape.kernel_width * shape.step_right - shape.pad_left;
          is_inside[i] = y >= 0 && y < shape.height && x >= 0 && x < shape.width ? 1 : 0;
          offset[i] = is_inside[i] != 0 ? static_cast<int32_t>(y * shape.width + x) : 0;
        }
  }
};

/// Calls work(column, element of the planes, whether it is inside) for each row, sample and place of its windows.
template <typename Work>
GRAPHPIPE_INLINE void for_each_tap(const Rows& rows, const Work& work) {
  const auto& [shape, block, begin, end] = rows;
  const Taps taps(shape, block);
  const int64_t places = block.lines * shape.places_right;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t channel = block.first_channel + row / shape.kernel(), first = row % shape.kernel() * places;
    for (int64_t n = 0; n < block.samples; ++n) {
      const int64_t column = (row * block.samples + n) * places;
      const int64_t plane = ((block.first_sample + n) * shape.channels + channel) * shape.height * shape.width;
      for (int64_t i = 0; i < places; ++i)
        work(column + i, plane + taps.offset[first + i], taps.is_inside[first + i] != 0);
    }
  }
}

template <typename Element>
GRAPHPIPE_INLINE void read_short_lines(const Rows& rows, const Element* planes, Element* columns) {
  for_each_tap(
      rows, [&](int64_t column, int64_t from, bool is_inside) __attribute__((always_inline)) {
        const Element element = planes[from];
        columns[column] = is_inside ? element : Element{0};
      });
}

template <typename Element>
GRAPHPIPE_INLINE void add_short_lines(const Rows& rows, const Element* columns, float* planes) {
  for_each_tap(
      rows, [&](int64_t column, int64_t to, bool is_inside)
                __attribute__((always_inline)) { planes[to] += is_inside ? widened(columns[column]) : 0.0F; });
}

template <typename Element>
GRAPHPIPE_INLINE void read_any(const Rows& rows, const Element* planes, Element* columns) {
  has_short_lines(rows.shape, rows.block) ? read_short_lines(rows, planes, columns) : read_rows(rows, planes, columns);
}
template <typename Element>
GRAPHPIPE_INLINE void add_any(const Rows& rows, const Element* columns, float* planes) {
  has_short_lines(rows.shape, rows.block) ? add_short_lines(rows, columns, planes) : add_rows(rows, columns, planes);
}

#if defined(__x86_64__)
template <typename Element>
GRAPHPIPE_AVX2 void read_avx2(const Rows& rows, const Element* planes, Element* columns) {
  read_any(rows, planes, columns);
}
template <typename Element>
GRAPHPIPE_AVX2 void add_avx2(const Rows& rows, const Element* columns, float* planes) {
  add_any(rows, columns, planes);
}
#endif

int64_t rows_per_thread(const WindowShape& shape, const WindowBlock& block) {
  return std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(1, block.windows(shape)));
}

template <typename Element>
void read_block(const WindowShape& shape, const WindowBlock& block, const Element* planes, Element* columns) {
  for_parts(block.rows(shape), rows_per_thread(shape, block), [&](int64_t begin, int64_t end) {
    const Rows rows{shape, block, begin, end};
#if defined(__x86_64__)
    if (has_avx2()) return read_avx2(rows, planes, columns);
#endif
    read_any(rows, planes, columns);
  });
}

template <typename Element>
void add_block(const WindowShape& shape, const WindowBlock& block, const Element* columns, float* planes) {
  // A channel's rows only add to its own planes.
  const int64_t grain = std::max<int64_t>(1, rows_per_thread(shape, block) / shape.kernel());
  for_parts(block.channels, grain, [&](int64_t begin, int64_t end) {
    const Rows rows{shape, block, begin * shape.kernel(), end * shape.kernel()};
#if defined(__x86_64__)
    if (has_avx2()) return add_avx2(rows, columns, planes);
#endif
    add_any(rows, columns, planes);
  });
}

}  // namespace

void windows_to_columns(const WindowShape& shape, const WindowBlock& block, const float* planes, float* columns) {
  read_block(shape, block, planes, columns);
}
void windows_to_columns(const WindowShape& shape, const WindowBlock& block, const uint16_t* planes, uint16_t* columns) {
  read_block(shape, block, planes, columns);
}
void add_columns_to_planes(const WindowShape& shape, const WindowBlock& block, const float* columns, float* planes) {
  add_block(shape, block, columns, planes);
}
void add_columns_to_planes(const WindowShape& shape, const WindowBlock& block, const uint16_t* columns, float* planes) {
  add_block(shape, block, columns, planes);
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
