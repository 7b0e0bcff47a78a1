#include "runtime/kernels/batch_norm_loops.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/vector_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math,no-math-errno")
#endif

namespace graphpipe::runtime {
namespace {

/// A float accumulates at most this many elements: each further one would lose low bits to the running sum.
constexpr int64_t kElementsInFloat = 1024;

template <typename Element>
GRAPHPIPE_INLINE float sum_of_block(const Element* __restrict x, int64_t width) {
  RowLanes sums;
  int64_t i = 0;
  for (; i + kRowLanes <= width; i += kRowLanes)
    for (int64_t lane = 0; lane < kRowLanes; ++lane) sums.of[lane] += widened(x[i + lane]);
  float sum = sums.sum();
  for (; i < width; ++i) sum += widened(x[i]);
  return sum;
}

template <typename Element>
GRAPHPIPE_INLINE double sum_of_line(const Element* __restrict x, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; i += kElementsInFloat)
    sum += sum_of_block(x + i, std::min(kElementsInFloat, width - i));
  return sum;
}

/// The sum of (a - a_mean) * (x - x_mean).
template <typename Element>
GRAPHPIPE_INLINE float products_of_block(const Element* __restrict a, float a_mean, const Element* __restrict x,
                                         float x_mean, int64_t width) {
  RowLanes sums;
  int64_t i = 0;
  for (; i + kRowLanes <= width; i += kRowLanes)
    for (int64_t lane = 0; lane < kRowLanes; ++lane)
      sums.of[lane] += (widened(a[i + lane]) - a_mean) * (widened(x[i + lane]) - x_mean);
  float sum = sums.sum();
  for (; i < width; ++i) sum += (widened(a[i]) - a_mean) * (widened(x[i]) - x_mean);
  return sum;
}

template <typename Element>
GRAPHPIPE_INLINE double sum_of_products(const Element* __restrict a, float a_mean, const Element* __restrict x,
                                        float x_mean, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; i += kElementsInFloat)
    sum += products_of_block(a + i, a_mean, x + i, x_mean, std::min(kElementsInFloat, width - i));
  return sum;
}

/// Of wide lines, a channel at a time.
struct ByLine {
  template <typename Element>
  static GRAPHPIPE_INLINE void measure(const BatchNormForward<Element>& f, Channels channels) {
    const ChannelShape& shape = f.shape;
    const int64_t c = channels.first;
    double sum = 0, squares = 0;
    for (int64_t n = 0; n < shape.samples; ++n) sum += sum_of_line(f.x + shape.line(n, c), shape.width);
    const auto mean = static_cast<float>(sum / static_cast<double>(shape.count()));
    for (int64_t n = 0; n < shape.samples; ++n) {
      const Element* const line = f.x + shape.line(n, c);
      squares += sum_of_products(line, mean, line, mean, shape.width);
    }
    f.squares[c] = squares;
    f.mean[c] = mean;
  }

  /// Of each element times `factor` plus `offset`.
  template <typename Element>
  static GRAPHPIPE_INLINE void normalize(const BatchNormForward<Element>& f, Channels channels, const float* factor,
                                         const float* offset) {
    const ChannelShape& shape = f.shape;
    for (int64_t n = 0; n < shape.samples; ++n) {
      const Element* __restrict from = f.x + shape.line(n, channels.first);
      Element* __restrict to = f.result + shape.line(n, channels.first);
      for (int64_t i = 0; i < shape.width; ++i) narrow_to(widened(from[i]) * factor[0] + offset[0], to[i]);
    }
  }

  template <typename Element>
  static GRAPHPIPE_INLINE void sum_gradients(const BatchNormBackward<Element>& b, Channels channels) {
    const ChannelShape& shape = b.shape;
    const int64_t c = channels.first;
    double sum = 0, products = 0;
    for (int64_t n = 0; n < shape.samples; ++n) {
      const int64_t line = shape.line(n, c);
      sum += sum_of_line(b.gradient + line, shape.width);
      products += sum_of_products(b.gradient + line, 0.0F, b.x + line, b.mean[c], shape.width);
    }
    b.sums[c] = sum;
    b.products[c] = products;
  }

  template <typename Element>
  static GRAPHPIPE_INLINE void gradient_of_x(const BatchNormBackward<Element>& b, Channels channels,
                                             const float* gradient_mean, const float* slope, const float* factor) {
    const ChannelShape& shape = b.shape;
    const float mean = b.mean[channels.first], of_gradient = gradient_mean[0], of_x = slope[0], times = factor[0];
    for (int64_t n = 0; n < shape.samples; ++n) {
      const int64_t line = shape.line(n, channels.first);
      const Element* __restrict from = b.gradient + line, * __restrict x = b.x + line;
      Element* __restrict to = b.of_x + line;
      for (int64_t i = 0; i < shape.width; ++i)
        narrow_to((widened(from[i]) - of_gradient - (widened(x[i]) - mean) * of_x) * times, to[i]);
    }
  }
};

/// Wider lines fill vectors by themselves.
constexpr int64_t kWideLine = 64;
/// Of all channels that are passed over together. Few, so that several threads have some.
constexpr int64_t kColumns = 64;
/// A column's float accumulates one element after the other, where a line has lanes.
constexpr int64_t kRowsInFloat = 64;

struct ColumnSums {
  double of[kColumns] = {};
};

/// Adds value(place, column) of all samples to the sum of each column.
template <typename Value>
GRAPHPIPE_INLINE void add_columns(const ChannelShape& shape, Channels channels, ColumnSums& sums, const Value& value) {
  const int64_t columns = channels.count * shape.width, stride = shape.channels * shape.width;
  for (int64_t begin = 0; begin < shape.samples; begin += kRowsInFloat) {
    const int64_t end = std::min(begin + kRowsInFloat, shape.samples);
    float part[kColumns] = {};
    int64_t n = begin;
    for (; n + 4 <= end; n += 4) {
      const int64_t line = shape.line(n, channels.first);
      for (int64_t i = 0; i < columns; ++i)
        part[i] += (value(line + i, i) + value(line + stride + i, i)) +
                   (value(line + 2 * stride + i, i) + value(line + 3 * stride + i, i));
    }
    for (; n < end; ++n) {
      const int64_t line = shape.line(n, channels.first);
      for (int64_t i = 0; i < columns; ++i) part[i] += value(line + i, i);
    }
    for (int64_t i = 0; i < columns; ++i) sums.of[i] += static_cast<double>(part[i]);
  }
}

/// The number of each channel, for each of its columns.
struct Spread {
  float of[kColumns];
  GRAPHPIPE_INLINE Spread(const ChannelShape& shape, Channels channels, const float* numbers) {
    for (int64_t c = 0; c < channels.count; ++c)
      for (int64_t i = 0; i < shape.width; ++i) of[c * shape.width + i] = numbers[c];
  }
};

GRAPHPIPE_INLINE double sum_of_channel(const ColumnSums& sums, int64_t width, int64_t channel) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += sums.of[channel * width + i];
  return sum;
}

/// Of narrow lines, several channels at a time.
struct ByColumn {
  template <typename Element>
  static GRAPHPIPE_INLINE void measure(const BatchNormForward<Element>& f, Channels channels) {
    const ChannelShape& shape = f.shape;
    const Element* __restrict const x = f.x;
    ColumnSums sums, squares;
    add_columns(
        shape, channels, sums, [&](int64_t at, int64_t) __attribute__((always_inline)) { return widened(x[at]); });
    for (int64_t c = 0; c < channels.count; ++c)
      f.mean[channels.first + c] =
          static_cast<float>(sum_of_channel(sums, shape.width, c) / static_cast<double>(shape.count()));
    const Spread mean(shape, channels, f.mean + channels.first);
    add_columns(
        shape, channels, squares, [&](int64_t at, int64_t i) __attribute__((always_inline)) {
          const float apart = widened(x[at]) - mean.of[i];
          return apart * apart;
        });
    for (int64_t c = 0; c < channels.count; ++c)
      f.squares[channels.first + c] = sum_of_channel(squares, shape.width, c);
  }

  template <typename Element>
  static GRAPHPIPE_INLINE void normalize(const BatchNormForward<Element>& f, Channels channels, const float* factor,
                                         const float* offset) {
    const ChannelShape& shape = f.shape;
    const Spread times(shape, channels, factor), plus(shape, channels, offset);
    for (int64_t n = 0; n < shape.samples; ++n) {
      const Element* __restrict from = f.x + shape.line(n, channels.first);
      Element* __restrict to = f.result + shape.line(n, channels.first);
      for (int64_t i = 0; i < channels.count * shape.width; ++i)
        narrow_to(widened(from[i]) * times.of[i] + plus.of[i], to[i]);
    }
  }

  template <typename Element>
  static GRAPHPIPE_INLINE void sum_gradients(const BatchNormBackward<Element>& b, Channels channels) {
    const ChannelShape& shape = b.shape;
    const Element* __restrict const gradient = b.gradient, * __restrict const x = b.x;
    const Spread mean(shape, channels, b.mean + channels.first);
    ColumnSums sums, products;
    add_columns(
        shape, channels,
        sums, [&](int64_t at, int64_t) __attribute__((always_inline)) { return widened(gradient[at]); });
    add_columns(
        shape, channels, products, [&](int64_t at, int64_t i) __attribute__((always_inline)) {
          return widened(gradient[at]) * (widened(x[at]) - mean.of[i]);
        });
    for (int64_t c = 0; c < channels.count; ++c) {
      b.sums[channels.first + c] = sum_of_channel(sums, shape.width, c);
      b.products[channels.first + c] = sum_of_channel(products, shape.width, c);
    }
  }

  template <typename Element>
  static GRAPHPIPE_INLINE void gradient_of_x(const BatchNormBackward<Element>& b, Channels channels,
                                             const float* gradient_mean, const float* slope, const float* factor) {
    const ChannelShape& shape = b.shape;
    const Spread mean(shape, channels, b.mean + channels.first), of_gradient(shape, channels, gradient_mean),
        of_x(shape, channels, slope), times(shape, channels, factor);
    for (int64_t n = 0; n < shape.samples; ++n) {
      const int64_t line = shape.line(n, channels.first);
      const Element* __restrict from = b.gradient + line, * __restrict x = b.x + line;
      Element* __restrict to = b.of_x + line;
      for (int64_t i = 0; i < channels.count * shape.width; ++i)
        narrow_to((widened(from[i]) - of_gradient.of[i] - (widened(x[i]) - mean.of[i]) * of_x.of[i]) * times.of[i],
                  to[i]);
    }
  }
};

template <typename Part, typename Element>
GRAPHPIPE_INLINE void normalize_by(const BatchNormForward<Element>& f, Channels channels, double count) {
  float factor[kColumns], offset[kColumns];
  for (int64_t i = 0; i < channels.count; ++i) {
    const int64_t c = channels.first + i;
    f.inverse_deviation[c] = static_cast<float>(1 / std::sqrt(f.squares[c] / count + f.epsilon));
    factor[i] = f.inverse_deviation[c] * f.scale[c];
    offset[i] = f.bias[c] - f.mean[c] * factor[i];
  }
  Part::normalize(f, channels, factor, offset);
}

template <typename Part, typename Element>
GRAPHPIPE_INLINE void sum_gradients_by(const BatchNormBackward<Element>& b, Channels channels) {
  Part::sum_gradients(b, channels);
  for (int64_t c = channels.first; c < channels.first + channels.count; ++c) {
    if (b.of_scale != nullptr) b.of_scale[c] = static_cast<float>(b.products[c] * b.inverse_deviation[c]);
    if (b.of_bias != nullptr) b.of_bias[c] = static_cast<float>(b.sums[c]);
  }
}

/// With r = 1 / deviation and g the gradient: scale r (g - mean(g) - (x - mean(x)) r^2 mean(g (x - mean(x)))).
template <typename Part, typename Element>
GRAPHPIPE_INLINE void gradient_of_x_by(const BatchNormBackward<Element>& b, Channels channels, double count) {
  float gradient_mean[kColumns], slope[kColumns], factor[kColumns];
  for (int64_t i = 0; i < channels.count; ++i) {
    const int64_t c = channels.first + i;
    const float inverse = b.inverse_deviation[c];
    gradient_mean[i] = static_cast<float>(b.sums[c] / count);
    slope[i] = static_cast<float>(b.products[c] * inverse * inverse / count);
    factor[i] = b.scale[c] * inverse;
  }
  Part::gradient_of_x(b, channels, gradient_mean, slope, factor);
}

bool is_wide(const ChannelShape& shape) { return shape.width >= kWideLine; }

/// The loops, by the width of the lines: `target` compiles them for any processor, or for those with wider vectors.
#define GRAPHPIPE_BATCH_NORM_LOOPS(name, target)                                                          \
  template <typename Element>                                                                             \
  struct name {                                                                                           \
    target static void measure(const BatchNormForward<Element>& f, Channels c) {                          \
      is_wide(f.shape) ? ByLine::measure(f, c) : ByColumn::measure(f, c);                                 \
    }                                                                                                     \
    target static void normalize(const BatchNormForward<Element>& f, Channels c, double count) {          \
      is_wide(f.shape) ? normalize_by<ByLine>(f, c, count) : normalize_by<ByColumn>(f, c, count);         \
    }                                                                                                     \
    target static void sum_gradients(const BatchNormBackward<Element>& b, Channels c) {                   \
      is_wide(b.shape) ? sum_gradients_by<ByLine>(b, c) : sum_gradients_by<ByColumn>(b, c);               \
    }                                                                                                     \
    target static void gradient_of_x(const BatchNormBackward<Element>& b, Channels c, double count) {     \
      is_wide(b.shape) ? gradient_of_x_by<ByLine>(b, c, count) : gradient_of_x_by<ByColumn>(b, c, count); \
    }                                                                                                     \
    static constexpr BatchNormLoops<Element> kAll = {measure, normalize, sum_gradients, gradient_of_x};   \
  };
GRAPHPIPE_BATCH_NORM_LOOPS(PlainLoops, )
GRAPHPIPE_BATCH_NORM_LOOPS(WideLoops, GRAPHPIPE_AVX2)
#undef GRAPHPIPE_BATCH_NORM_LOOPS

}  // namespace

int64_t channels_together(const ChannelShape& shape) {
  return is_wide(shape) ? 1 : kColumns / std::max<int64_t>(shape.width, 1);
}

template <typename Element>
const BatchNormLoops<Element>& batch_norm_loops() {
  return has_avx2() ? WideLoops<Element>::kAll : PlainLoops<Element>::kAll;
}
template const BatchNormLoops<float>& batch_norm_loops();
template const BatchNormLoops<uint16_t>& batch_norm_loops();

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
