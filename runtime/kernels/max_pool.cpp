#include "runtime/kernels/max_pool.h"

#include <ATen/Parallel.h>
#include <ATen/native/Pool.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d_with_indices.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/kernels/bfloats.h"
#include "runtime/kernels/vectors.h"
#include "runtime/kernels/windows.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math")
#endif

namespace graphpipe::runtime {
namespace {

/// The number of places of a line that a loop holds at once.
constexpr int64_t kLinePlaces = 512;

/// Of floats or, by their bits, of bfloat16.
template <typename Element>
struct Pool {
  WindowShape shape;
  /// By element of a line of the kernel: the places at which it lies inside the plane.
  const PlaceRange* inside;
  const Element* planes;
  Element* maxima;
  int64_t* places;
};

/// The first of first, first + step, .. that is not negative.
GRAPHPIPE_INLINE int64_t first_inside(int64_t first, int64_t step) {
  return first >= 0 ? first : first + (-first + step - 1) / step * step;
}

/// Line `line` of the places of all planes. The stride is the compile-time constant kStride if that is positive, so
/// that the loop is vectorised.
template <int64_t kStride, typename Element>
GRAPHPIPE_INLINE void pool_line(const Pool<Element>& pool, int64_t line) {
  const WindowShape& shape = pool.shape;
  const int64_t stride = kStride > 0 ? kStride : shape.stride_right;
  const Element* const plane = pool.planes + line / shape.places_down * shape.height * shape.width;
  const int64_t top = line % shape.places_down * shape.stride_down - shape.pad_top;
  float best[kLinePlaces];
  int32_t place[kLinePlaces];
  // For a window of nothing but -infinity, the first element counts as the maximum.
  const int64_t first_row = first_inside(top, shape.step_down) * shape.width;
  for (int64_t i = 0; i < shape.places_right; ++i) {
    best[i] = -std::numeric_limits<float>::infinity();
    place[i] = static_cast<int32_t>(first_row + first_inside(i * stride - shape.pad_left, shape.step_right));
  }
  for (int64_t y = first_inside(top, shape.step_down); y < std::min(shape.height, top + shape.span_down());
       y += shape.step_down) {
    for (int64_t right = 0; right < shape.kernel_width; ++right) {
      const int64_t first = y * shape.width + right * shape.step_right - shape.pad_left;
      const Element* __restrict from = plane + first;
      for (int64_t i = pool.inside[right].begin; i < pool.inside[right].end; ++i) {
        const float value = widened(from[i * stride]);
        const bool is_better =
            (value > best[i]) | (value != value);  // no short circuit, so that the loop is vectorised
        place[i] = is_better ? static_cast<int32_t>(first) + static_cast<int32_t>(i * stride) : place[i];
        best[i] = is_better ? value : best[i];
      }
    }
  }
  Element* __restrict maxima = pool.maxima + line * shape.places_right;
  int64_t* __restrict places = pool.places + line * shape.places_right;
  for (int64_t i = 0; i < shape.places_right; ++i) {
    narrow_to(best[i], maxima[i]);
    places[i] = place[i];
  }
}

template <typename Element>
GRAPHPIPE_INLINE void pool_lines(const Pool<Element>& pool, int64_t begin, int64_t end) {
  for (int64_t line = begin; line < end; ++line) {
    if (pool.shape.stride_right == 1) pool_line<1>(pool, line);
    else if (pool.shape.stride_right == 2) pool_line<2>(pool, line);
    else pool_line<0>(pool, line);
  }
}

#if defined(__x86_64__)
template <typename Element>
GRAPHPIPE_AVX2 void pool_lines_avx2(const Pool<Element>& pool, int64_t begin, int64_t end) {
  pool_lines(pool, begin, end);
}
#endif

template <typename Element>
void pool_some(const Pool<Element>& pool, int64_t begin, int64_t end) {
#if defined(__x86_64__)
  if (has_avx2()) return pool_lines_avx2(pool, begin, end);
#endif
  pool_lines(pool, begin, end);
}

// --- without strides: all places of a plane as one line, over a copy with its pads ---

using Places8 = int32_t __attribute__((vector_size(32)));
using UnalignedPlaces8 = int32_t __attribute__((vector_size(32), aligned(4)));

/// Floats of a copy at most; wider lines fill vectors by themselves.
constexpr int64_t kDenseFloats = 4096, kDensePlaces = 64;

/// An element of the kernel: how far from a place it lies in the copy, and in the plane.
struct PoolTap {
  int64_t offset;
  int32_t place;
};
template <typename Element>
struct DensePool {
  WindowShape shape;
  int64_t pitch;
  std::vector<PoolTap> taps;
  /// By place of the copy: that of the plane's element in the kernel's corner, and of the first one inside.
  std::vector<int32_t> corners, first;
  const Element* planes;
  Element* maxima;
  int64_t* places;
};

bool fits_dense(const WindowShape& shape) {
  if (shape.has_strides() || shape.places_right > kDensePlaces || shape.kernel() > kDensePlaces) return false;
  const int64_t pitch = shape.places_right + shape.span_right() - 1;
  return (shape.places_down + shape.span_down() - 1) * pitch + shape.span_right() + kVector8Lanes <= kDenseFloats;
}

template <typename Element>
DensePool<Element> dense_pool(const WindowShape& shape) {
  DensePool<Element> pool{.shape = shape, .pitch = shape.places_right + shape.span_right() - 1};
  const auto count = static_cast<size_t>(shape.places_down * pool.pitch + kVector8Lanes);
  pool.corners.resize(count), pool.first.resize(count);
  for (int64_t i = 0; i < shape.places_down * pool.pitch; ++i) {
    const int64_t top = i / pool.pitch - shape.pad_top, left = i % pool.pitch - shape.pad_left;
    pool.corners[static_cast<size_t>(i)] = static_cast<int32_t>(top * shape.width + left);
    pool.first[static_cast<size_t>(i)] =
        static_cast<int32_t>(first_inside(top, shape.step_down) * shape.width + first_inside(left, shape.step_right));
  }
  for (int64_t i = 0; i < shape.kernel(); ++i) {
    const int64_t down = i / shape.kernel_width * shape.step_down, right = i % shape.kernel_width * shape.step_right;
    pool.taps.push_back({down * pool.pitch + right, static_cast<int32_t>(down * shape.width + right)});
  }
  return pool;
}

template <typename Element>
GRAPHPIPE_INLINE void pool_planes(const DensePool<Element>& pool, int64_t begin, int64_t end) {
  const WindowShape& shape = pool.shape;
  const int64_t count = shape.places_down * pool.pitch, inside = std::min(shape.width, pool.pitch - shape.pad_left);
  const int64_t lines = std::min(shape.height, shape.places_down + shape.span_down() - 1 - shape.pad_top);
  float copy[kDenseFloats], best[kDenseFloats];
  int32_t found[kDenseFloats];
  std::fill_n(copy, kDenseFloats, -std::numeric_limits<float>::infinity());
  for (int64_t plane = begin; plane < end; ++plane) {
    const Element* const from = pool.planes + plane * shape.height * shape.width;
    for (int64_t y = 0; y < lines; ++y)
      std::transform(from + y * shape.width, from + y * shape.width + inside,
                     copy + (y + shape.pad_top) * pool.pitch + shape.pad_left, [](Element x) { return widened(x); });
    for (int64_t i = 0; i < count; i += kVector8Lanes) {
      const Places8 corner = *reinterpret_cast<const UnalignedPlaces8*>(pool.corners.data() + i);
      Places8 place = *reinterpret_cast<const UnalignedPlaces8*>(pool.first.data() + i);
      Vector8 largest = Vector8{} - std::numeric_limits<float>::infinity();
      for (const PoolTap& tap : pool.taps) {
        const Vector8 value = load8(copy + i + tap.offset);
        const Places8 is_better = (value > largest) | (value != value);
        place = is_better ? corner + tap.place : place;
        largest = is_better ? value : largest;
      }
      store8(best + i, largest);
      *reinterpret_cast<UnalignedPlaces8*>(found + i) = place;
    }
    for (int64_t y = 0; y < shape.places_down; ++y) {
      const int64_t to = (plane * shape.places_down + y) * shape.places_right, line = y * pool.pitch;
      for (int64_t x = 0; x < shape.places_right; ++x) {
        narrow_to(best[line + x], pool.maxima[to + x]);
        pool.places[to + x] = found[line + x];
      }
    }
  }
}

#if defined(__x86_64__)
template <typename Element>
GRAPHPIPE_AVX2 void pool_planes_avx2(const DensePool<Element>& pool, int64_t begin, int64_t end) {
  pool_planes(pool, begin, end);
}
#endif

template <typename Element>
void pool_some_planes(const DensePool<Element>& pool, int64_t begin, int64_t end) {
#if defined(__x86_64__)
  if (has_avx2()) return pool_planes_avx2(pool, begin, end);
#endif
  pool_planes(pool, begin, end);
}

}  // namespace
}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace graphpipe::runtime {
namespace {

template <typename Element>
void pool_all(const WindowShape& shape, const at::Tensor& x, const at::Tensor& maxima, const at::Tensor& found) {
  const auto* const planes = static_cast<const Element*>(x.const_data_ptr());
  auto* const to = static_cast<Element*>(maxima.mutable_data_ptr());
  if (fits_dense(shape)) {
    DensePool<Element> pool = dense_pool<Element>(shape);
    pool.planes = planes, pool.maxima = to, pool.places = found.mutable_data_ptr<int64_t>();
    const int64_t planes_per_thread = std::max<int64_t>(1, kElementsPerThread / shape.places());
    at::parallel_for(0, shape.samples * shape.channels, planes_per_thread,
                     [&](int64_t begin, int64_t end) { pool_some_planes(pool, begin, end); });
    return;
  }
  std::vector<PlaceRange> inside;
  for (int64_t right = 0; right < shape.kernel_width; ++right)
    inside.push_back(
        places_inside(right * shape.step_right - shape.pad_left, shape.stride_right, shape.width, shape.places_right));
  const Pool<Element> pool{.shape = shape,
                           .inside = inside.data(),
                           .planes = planes,
                           .maxima = to,
                           .places = found.mutable_data_ptr<int64_t>()};
  const int64_t grain = std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(1, shape.places_right));
  at::parallel_for(0, shape.samples * shape.channels * shape.places_down, grain,
                   [&](int64_t begin, int64_t end) { pool_some(pool, begin, end); });
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> max_pool_2d(const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef strides,
                                               at::IntArrayRef pads, at::IntArrayRef dilations, bool rounds_up) {
  const auto places = [&](size_t axis) {
    return at::native::pooling_output_shape<int64_t>(x.size(static_cast<int64_t>(axis) + 2), kernel[axis], pads[axis],
                                                     strides[axis], dilations[axis], rounds_up);
  };
  const WindowShape shape{.samples = x.size(0),
                          .channels = x.size(1),
                          .height = x.size(2),
                          .width = x.size(3),
                          .kernel_height = kernel[0],
                          .kernel_width = kernel[1],
                          .stride_down = strides[0],
                          .stride_right = strides[1],
                          .pad_top = pads[0],
                          .pad_left = pads[1],
                          .step_down = dilations[0],
                          .step_right = dilations[1],
                          .places_down = places(0),
                          .places_right = places(1)};
  const bool fits =
      shape.places_right <= kLinePlaces && shape.height * shape.width < std::numeric_limits<int32_t>::max();
  if ((!loop_takes(x) && !are_bfloats(x)) || !fits)
    return at::max_pool2d_with_indices(x, kernel, strides, pads, dilations, rounds_up);
  const std::vector<int64_t> sizes = {shape.samples, shape.channels, shape.places_down, shape.places_right};
  at::Tensor maxima = at::empty(sizes, x.options()), found = at::empty(sizes, x.options().dtype(at::kLong));
  if (are_bfloats(x)) pool_all<uint16_t>(shape, x, maxima, found);
  else pool_all<float>(shape, x, maxima, found);
  return {maxima, found};
}

}  // namespace graphpipe::runtime
