#include "runtime/kernels/prelu.h"

#define AT_PER_OPERATOR_HEADERS  // ExpandUtils.h then includes what it needs, not all of ATen
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_prelu_kernel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "runtime/kernels/vector_loops.h"
#include "support/integer_math.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math")
#endif

namespace graphpipe::runtime {
namespace {

/// x as [lines, slopes, width]: a slope has `width` neighbouring elements of each line.
struct SlopedLines {
  int64_t lines = 1, slopes = 1, width = 1;
  int64_t at(int64_t line, int64_t slope) const { return (line * slopes + slope) * width; }
};

GRAPHPIPE_INLINE float sloped(float x, float slope) { return x > 0 ? x : slope * x; }

/// Of an element whose result has this gradient: the gradient of x.
GRAPHPIPE_INLINE float passed(float gradient, float x, float slope) { return x > 0 ? gradient : slope * gradient; }

/// Of `count` elements, whose slopes lie `step` apart: 0 or 1.
GRAPHPIPE_INLINE void slope_line(const float* __restrict x, const float* __restrict slope, int64_t step,
                                 float* __restrict result, int64_t count) {
  if (step == 0)
    for (int64_t i = 0; i < count; ++i) result[i] = sloped(x[i], slope[0]);
  else
    for (int64_t i = 0; i < count; ++i) result[i] = sloped(x[i], slope[i]);
}

GRAPHPIPE_INLINE void pass_line(const float* __restrict gradient, const float* __restrict x,
                                const float* __restrict slope, int64_t step, float* __restrict of_x, int64_t count) {
  if (step == 0)
    for (int64_t i = 0; i < count; ++i) of_x[i] = passed(gradient[i], x[i], slope[0]);
  else
    for (int64_t i = 0; i < count; ++i) of_x[i] = passed(gradient[i], x[i], slope[i]);
}

/// Of a product with the gradient, where x is not positive. (GCC 12 adds up wrongly in vectors what is written as a
/// choice between the product and 0.)
GRAPHPIPE_INLINE float not_positive(float x) { return std::min(x, 0.0F); }

/// The sum of gradient times x where x is not positive.
GRAPHPIPE_INLINE double products_of_line(const float* __restrict gradient, const float* __restrict x, int64_t count) {
  constexpr int64_t kElementsInFloat = 1024;
  double sum = 0;
  for (int64_t first = 0; first < count; first += kElementsInFloat) {
    const int64_t end = std::min(first + kElementsInFloat, count);
    RowLanes sums;
    int64_t i = first;
    for (; i + kRowLanes <= end; i += kRowLanes)
      for (int64_t lane = 0; lane < kRowLanes; ++lane) sums.of[lane] += gradient[i + lane] * not_positive(x[i + lane]);
    float part = sums.sum();
    for (; i < end; ++i) part += gradient[i] * not_positive(x[i]);
    sum += static_cast<double>(part);
  }
  return sum;
}

/// The same for `count` neighbouring slopes of one element per line each.
constexpr int64_t kSlopesTogether = 64;
GRAPHPIPE_INLINE void products_of_columns(const SlopedLines& of, const float* gradient, const float* x, int64_t first,
                                          int64_t count, float* of_slope) {
  constexpr int64_t kLinesInFloat = 64;
  double sums[kSlopesTogether] = {};
  for (int64_t begin = 0; begin < of.lines; begin += kLinesInFloat) {
    float part[kSlopesTogether] = {};
    for (int64_t line = begin; line < std::min(begin + kLinesInFloat, of.lines); ++line) {
      const float* __restrict const g = gradient + of.at(line, first), * __restrict const values =
                                                                           x + of.at(line, first);
      for (int64_t i = 0; i < count; ++i) part[i] += g[i] * not_positive(values[i]);
    }
    for (int64_t i = 0; i < count; ++i) sums[i] += static_cast<double>(part[i]);
  }
  for (int64_t i = 0; i < count; ++i) of_slope[i] = static_cast<float>(sums[i]);
}

struct PReluLoops {
  void (*slope_line)(const float*, const float*, int64_t, float*, int64_t);
  void (*pass_line)(const float*, const float*, const float*, int64_t, float*, int64_t);
  double (*products_of_line)(const float*, const float*, int64_t);
  void (*products_of_columns)(const SlopedLines&, const float*, const float*, int64_t, int64_t, float*);
};

constexpr PReluLoops kPReluLoops = {
    [](const float* x, const float* slope, int64_t step, float* to, int64_t count) {
      slope_line(x, slope, step, to, count);
    },
    [](const float* gradient, const float* x, const float* slope, int64_t step, float* to, int64_t count) {
      pass_line(gradient, x, slope, step, to, count);
    },
    [](const float* gradient, const float* x, int64_t count) { return products_of_line(gradient, x, count); },
    [](const SlopedLines& of, const float* gradient, const float* x, int64_t first, int64_t count, float* to) {
      products_of_columns(of, gradient, x, first, count, to);
    }};

#if defined(__x86_64__)
GRAPHPIPE_AVX2 void slope_line_avx2(const float* x, const float* slope, int64_t step, float* to, int64_t count) {
  slope_line(x, slope, step, to, count);
}
GRAPHPIPE_AVX2 void pass_line_avx2(const float* gradient, const float* x, const float* slope, int64_t step, float* to,
                                   int64_t count) {
  pass_line(gradient, x, slope, step, to, count);
}
GRAPHPIPE_AVX2 double products_of_line_avx2(const float* gradient, const float* x, int64_t count) {
  return products_of_line(gradient, x, count);
}
GRAPHPIPE_AVX2 void products_of_columns_avx2(const SlopedLines& of, const float* gradient, const float* x,
                                             int64_t first, int64_t count, float* to) {
  products_of_columns(of, gradient, x, first, count, to);
}
constexpr PReluLoops kWidePReluLoops = {slope_line_avx2, pass_line_avx2, products_of_line_avx2,
                                        products_of_columns_avx2};
#else
constexpr PReluLoops kWidePReluLoops = kPReluLoops;
#endif

const PReluLoops& prelu_loops() { return has_avx2() ? kWidePReluLoops : kPReluLoops; }

}  // namespace
}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace graphpipe::runtime {
namespace {

/// Nothing where the slope's axes that are not 1 do not stand side by side, or where loops do not take the tensors.
std::optional<SlopedLines> sloped_lines(const at::Tensor& x, const at::Tensor& slope) {
  if (!loop_takes(x) || !loop_takes(slope) || slope.dim() > x.dim() || x.numel() == 0) return std::nullopt;
  SlopedLines lines;
  const int64_t before = x.dim() - slope.dim();
  bool is_behind = false;
  for (int64_t axis = 0; axis < x.dim(); ++axis) {
    const int64_t size = x.size(axis);
    if (axis >= before && slope.size(axis - before) != 1) {
      if (is_behind) return std::nullopt;
      lines.slopes *= size;
    } else if (size != 1) {
      is_behind = lines.slopes > 1;
      (is_behind ? lines.width : lines.lines) *= size;
    }
  }
  return lines.slopes > 1 ? lines : SlopedLines{.lines = 1, .slopes = 1, .width = x.numel()};
}

/// Calls loop(first element, its slope, step of slopes, count) for runs of elements: of one slope each, of all slopes
/// of a line where each has one element, or some of those that share the only slope.
template <typename Loop>
void for_runs(const SlopedLines& of, const Loop& loop) {
  if (of.slopes == 1)
    return for_parts(of.width, kElementsPerThread,
                     [&](int64_t begin, int64_t end) { loop(begin, 0, int64_t{0}, end - begin); });
  const bool one_each = of.width == 1;
  const int64_t length = one_each ? of.slopes : of.width, runs = one_each ? of.lines : of.lines * of.slopes;
  for_parts(runs, std::max<int64_t>(1, kElementsPerThread / length), [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run)
      loop(run * length, one_each ? 0 : run % of.slopes, int64_t{one_each}, length);
  });
}

/// Of the only slope: sums of parts that do not depend on the number of threads.
float products_of_all(const float* gradient, const float* x, int64_t count) {
  std::vector<double> parts(static_cast<size_t>(ceil_div(count, kElementsPerThread)));
  for_parts(std::ssize(parts), 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = part * kElementsPerThread;
      parts[static_cast<size_t>(part)] =
          prelu_loops().products_of_line(gradient + first, x + first, std::min(kElementsPerThread, count - first));
    }
  });
  return static_cast<float>(std::accumulate(parts.begin(), parts.end(), 0.0));
}

}  // namespace

at::Tensor prelu(const at::Tensor& x, const at::Tensor& slope) {
  const std::optional<SlopedLines> lines = sloped_lines(x, slope);
  if (!lines) return at::_prelu_kernel(x, slope);
  at::Tensor result = at::empty_like(x);
  const float *const from = x.const_data_ptr<float>(), *const slopes = slope.const_data_ptr<float>();
  float* const to = result.mutable_data_ptr<float>();
  for_runs(*lines, [&](int64_t first, int64_t at, int64_t step, int64_t count) {
    prelu_loops().slope_line(from + first, slopes + at, step, to + first, count);
  });
  return result;
}

at::Tensor prelu_input_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& slope) {
  const std::optional<SlopedLines> lines = sloped_lines(x, slope);
  if (!lines || !loop_takes(gradient)) return at::where(x.gt(0.0), gradient, gradient.mul(slope));
  at::Tensor of_x = at::empty_like(x);
  const float *const from = gradient.const_data_ptr<float>(), *const values = x.const_data_ptr<float>(),
                     *const slopes = slope.const_data_ptr<float>();
  float* const to = of_x.mutable_data_ptr<float>();
  for_runs(*lines, [&](int64_t first, int64_t at, int64_t step, int64_t count) {
    prelu_loops().pass_line(from + first, values + first, slopes + at, step, to + first, count);
  });
  return of_x;
}

at::Tensor prelu_slope_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& slope) {
  const std::optional<SlopedLines> lines = sloped_lines(x, slope);
  if (!lines || !loop_takes(gradient)) return at::sum_to(x.clamp_max(0.0).mul_(gradient), slope.sizes());
  at::Tensor of_slope = at::empty_like(slope);
  const float *const from = gradient.const_data_ptr<float>(), *const values = x.const_data_ptr<float>();
  float* const to = of_slope.mutable_data_ptr<float>();
  const int64_t grain = std::max<int64_t>(1, kElementsPerThread / (lines->lines * lines->width));
  if (lines->slopes == 1) {
    *to = products_of_all(from, values, lines->width);
    return of_slope;
  }
  if (lines->width == 1) {
    const int64_t blocks = ceil_div(lines->slopes, kSlopesTogether);
    for_parts(blocks, std::max<int64_t>(1, grain / kSlopesTogether), [&](int64_t begin, int64_t end) {
      for (int64_t first = begin * kSlopesTogether; first < std::min(end * kSlopesTogether, lines->slopes);
           first += kSlopesTogether)
        prelu_loops().products_of_columns(*lines, from, values, first, std::min(kSlopesTogether, lines->slopes - first),
                                          to + first);
    });
    return of_slope;
  }
  for_parts(lines->slopes, grain, [&](int64_t begin, int64_t end) {
    for (int64_t slope_at = begin; slope_at < end; ++slope_at) {
      double sum = 0;
      for (int64_t line = 0; line < lines->lines; ++line)
        sum += prelu_loops().products_of_line(from + lines->at(line, slope_at), values + lines->at(line, slope_at),
                                              lines->width);
      to[slope_at] = static_cast<float>(sum);
    }
  });
  return of_slope;
}

}  // namespace graphpipe::runtime
