#include "runtime/kernels/windows.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "runtime/kernels/vector_loops.h"

namespace graphpipe::runtime {

PlaceRange places_inside(int64_t first, int64_t stride, int64_t size, int64_t places) {
  const int64_t begin = first >= 0 ? 0 : std::min((-first + stride - 1) / stride, places);
  const int64_t end = first >= size ? 0 : (size - 1 - first) / stride + 1;
  return {begin, std::clamp(end, begin, places)};
}

namespace {

// Calls line(first column, plane element of the line's first place, range of the places that lie inside) for each line
// of places of one element of the kernel, in all samples.
template <typename Line>
void for_each_line(const WindowShape& shape, int64_t row, const Line& line) {
  const int64_t channel = row / (shape.kernel_height * shape.kernel_width);
  const int64_t down = row / shape.kernel_width % shape.kernel_height, right = row % shape.kernel_width;
  const int64_t left = right * shape.step_right - shape.pad_left;
  const PlaceRange inside = places_inside(left, shape.stride_right, shape.width, shape.places_right);
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    const int64_t plane = (sample * shape.channels + channel) * shape.height * shape.width;
    for (int64_t place = 0; place < shape.places_down; ++place) {
      const int64_t y = place * shape.stride_down + down * shape.step_down - shape.pad_top;
      const int64_t column = (sample * shape.places_down + place) * shape.places_right;
      const bool is_inside = y >= 0 && y < shape.height;
      line(column, plane + y * shape.width + left, is_inside ? inside : PlaceRange{});
    }
  }
}

int64_t rows_per_thread(const WindowShape& shape) {
  return std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(1, shape.windows()));
}

}  // namespace

void windows_to_columns(const WindowShape& shape, const float* planes, float* columns) {
  at::parallel_for(0, shape.rows(), rows_per_thread(shape), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* const to = columns + row * shape.windows();
      for_each_line(shape, row, [&](int64_t column, int64_t from, PlaceRange inside) {
        float* const places = to + column;
        std::fill(places, places + inside.begin, 0.0F);
        for (int64_t i = inside.begin; i < inside.end; ++i) places[i] = planes[from + i * shape.stride_right];
        std::fill(places + inside.end, places + shape.places_right, 0.0F);
      });
    }
  });
}

void add_columns_to_planes(const WindowShape& shape, const float* columns, float* planes) {
  const int64_t kernel = shape.kernel_height * shape.kernel_width;
  // A channel's rows only add to its own planes.
  at::parallel_for(0, shape.channels, std::max<int64_t>(1, rows_per_thread(shape) / kernel),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t row = begin * kernel; row < end * kernel; ++row) {
                       const float* const from = columns + row * shape.windows();
                       for_each_line(shape, row, [&](int64_t column, int64_t to, PlaceRange inside) {
                         for (int64_t i = inside.begin; i < inside.end; ++i)
                           planes[to + i * shape.stride_right] += from[column + i];
                       });
                     }
                   });
}

}  // namespace graphpipe::runtime
