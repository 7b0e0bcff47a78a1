#include "runtime/kernels/small_product.h"

#include <algorithm>
#include <memory>

#include "runtime/kernels/panel_product.h"
#include "runtime/kernels/turned_product.h"
#include "runtime/kernels/vectors.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

namespace graphpipe::runtime {
namespace {

/// With more multiplications, libraries are faster (docs/performance.md, "Kernels"): in floats, in floats where one
/// side is short, and in 16 bits.
constexpr int64_t kManyMultiplications = 1 << 18, kManyOfShortSide = 1 << 19, kManyOfBfloats = 1 << 19;
constexpr int64_t kShortSide = 16;

int64_t in_panels(int64_t count, int64_t columns) { return (count + columns - 1) / columns * columns; }

/// Where operands are copied to whose columns do not lie side by side, and where such results come from.
struct Buffers {
  alignas(64) float right[kMaxSmallFloats], results[kMaxSmallFloats];
};

/// Of this thread, made when it first needs them.
Buffers& buffers() {
  thread_local const std::unique_ptr<Buffers> all = std::make_unique<Buffers>();
  return *all;
}

MatrixView from_column(MatrixView matrix, int64_t first) {
  matrix.data += first * matrix.column_stride;
  matrix.columns -= first;
  return matrix;
}

/// Up to kPanelColumns floats that lie side by side, to others or added to them.
GRAPHPIPE_INLINE void take_few(const float* from, int64_t count, float* to, bool adds) {
  if (count < kVector8Lanes) {
    for (int64_t i = 0; i < count; ++i) to[i] = adds ? to[i] + from[i] : from[i];
    return;
  }
  // The vectors overlap: both are read before one is written.
  Vector8 first = load8(from), last = load8(from + count - kVector8Lanes);
  if (adds) {
    first += load8(to);
    last += load8(to + count - kVector8Lanes);
  }
  store8(to, first);
  store8(to + count - kVector8Lanes, last);
}

/// The first `count` columns of a matrix to a panel of kColumns, whose other columns become zeros.
template <int64_t kColumns>
GRAPHPIPE_INLINE void write_panel(const MatrixView& matrix, int64_t count, float* to) {
  int64_t row = 0;
  if (matrix.row_stride == 1)
    for (; row + kVector8Lanes <= matrix.rows; row += kVector8Lanes)
      for (int64_t part = 0; part < kColumns; part += kVector8Lanes) {
        Vector8 square[kVector8Lanes] = {};
        const float* const from = matrix.data + part * matrix.column_stride + row;
#pragma GCC unroll 8
        for (int64_t i = 0; i < kVector8Lanes; ++i)
          if (part + i < count) square[i] = load8(from + i * matrix.column_stride);
        transpose(square);
#pragma GCC unroll 8
        for (int64_t i = 0; i < kVector8Lanes; ++i) store8(to + (row + i) * kColumns + part, square[i]);
      }
  for (; row < matrix.rows; ++row) {
    const float* const from = matrix.data + row * matrix.row_stride;
    float* const panel = to + row * kColumns;
    for (int64_t part = 0; part < kColumns; part += kVector8Lanes) store8(panel + part, Vector8{});
    if (matrix.column_stride == 1) take_few(from, count, panel, /*adds=*/false);
    else
      for (int64_t i = 0; i < count; ++i) panel[i] = from[i * matrix.column_stride];
  }
}

/// Where an element of the result goes.
struct Target {
  float* data;
  int64_t row_stride, column_stride;
};

/// The first `count` columns of a panel of results to their places, or added to what stands there.
template <int64_t kColumns>
GRAPHPIPE_INLINE void take_panel(const float* from, int64_t rows, int64_t count, const Target& target, bool adds) {
  int64_t row = 0;
  if (target.row_stride == 1)
    for (; row + kVector8Lanes <= rows; row += kVector8Lanes)
      for (int64_t part = 0; part < count; part += kVector8Lanes) {
        Vector8 square[kVector8Lanes];
#pragma GCC unroll 8
        for (int64_t i = 0; i < kVector8Lanes; ++i) square[i] = load8(from + (row + i) * kColumns + part);
        transpose(square);
        float* const to = target.data + part * target.column_stride + row;
#pragma GCC unroll 8
        for (int64_t i = 0; i < kVector8Lanes; ++i)
          if (part + i < count) {
            float* const row_of_result = to + i * target.column_stride;
            store8(row_of_result, adds ? load8(row_of_result) + square[i] : square[i]);
          }
      }
  for (; row < rows; ++row) {
    const float* const panel = from + row * kColumns;
    float* const to = target.data + row * target.row_stride;
    if (target.column_stride == 1) take_few(panel, count, to, adds);
    else
      for (int64_t i = 0; i < count; ++i) {
        float& element = to[i * target.column_stride];
        element = adds ? element + panel[i] : panel[i];
      }
  }
}

/// Columns from `first` on, by way of the buffers.
template <int64_t kColumns>
GRAPHPIPE_AVX2 void multiply_copies(const MatrixView& left, const MatrixView& right, int64_t first,
                                    const Target& target, bool adds) {
  Buffers& copies = buffers();
  PanelProduct product{.rows = left.rows, .inner = left.columns};
  product.panels = (right.columns - first + kColumns - 1) / kColumns;
  product.left = left.data;
  product.left_stride = left.row_stride;
  product.left_inner_stride = left.column_stride;
  product.right = copies.right;
  product.right_stride = left.columns * kColumns;
  product.right_inner_stride = kColumns;
  product.results = copies.results;
  product.result_stride = left.rows * kColumns;
  product.result_row_stride = kColumns;
  const auto columns_of = [&](int64_t panel) { return std::min(kColumns, right.columns - first - panel * kColumns); };
  for (int64_t panel = 0; panel < product.panels; ++panel)
    write_panel<kColumns>(from_column(right, first + panel * kColumns), columns_of(panel),
                          copies.right + panel * product.right_stride);
  if constexpr (kColumns == kPanelColumns) multiply_panels(product);
  else multiply_narrow_panels(product);
  for (int64_t panel = 0; panel < product.panels; ++panel) {
    Target to = target;
    to.data += (first + panel * kColumns) * target.column_stride;
    take_panel<kColumns>(copies.results + panel * product.result_stride, left.rows, columns_of(panel), to, adds);
  }
}

/// Whole panels of columns that lie side by side, in both; returns how many columns those are.
int64_t multiply_in_place(const MatrixView& left, const MatrixView& right, const Target& target, bool adds) {
  if (right.column_stride != 1 || target.column_stride != 1) return 0;
  PanelProduct product{.rows = left.rows, .inner = left.columns, .panels = right.columns / kPanelColumns};
  product.left = left.data;
  product.left_stride = left.row_stride;
  product.left_inner_stride = left.column_stride;
  product.right = right.data;
  product.right_stride = kPanelColumns;
  product.right_inner_stride = right.row_stride;
  product.results = target.data;
  product.result_stride = kPanelColumns;
  product.result_row_stride = target.row_stride;
  product.adds = adds;
  multiply_panels(product);
  return product.panels * kPanelColumns;
}

void multiply_into(const MatrixView& left, const MatrixView& right, const Target& target, bool adds) {
  const int64_t done = multiply_in_place(left, right, target, adds);
  if (right.columns - done > kNarrowPanelColumns) multiply_copies<kPanelColumns>(left, right, done, target, adds);
  else if (right.columns > done) multiply_copies<kNarrowPanelColumns>(left, right, done, target, adds);
}

/// Elements that are moved one by one: those of a right operand that lies otherwise, and of a turned result.
int64_t moved_elements(const MatrixView& right, int64_t turned_results) {
  return (right.column_stride == 1 ? 0 : right.rows * right.columns) + turned_results;
}

bool is_small(int64_t rows, int64_t inner, int64_t columns, int64_t max_multiplications) {
  if (!has_avx2() || rows < 1 || inner < 1 || columns < 1) return false;
  if (std::max({rows, inner, columns}) > kMaxSmallFloats || rows * inner * columns > max_multiplications) return false;
  const auto fits = [](int64_t a, int64_t b) { return a * in_panels(b, kPanelColumns) <= kMaxSmallFloats; };
  return fits(rows, inner) && fits(inner, rows) && fits(inner, columns) && fits(columns, inner) &&
         fits(rows, columns) && fits(columns, rows);
}

}  // namespace

bool is_small_product(int64_t rows, int64_t inner, int64_t columns) {
  const bool has_short_side = std::min({rows, inner, columns}) <= kShortSide;
  return is_small(rows, inner, columns, has_short_side ? kManyOfShortSide : kManyMultiplications);
}

bool is_small_product_of_bfloats(int64_t rows, int64_t inner, int64_t columns) {
  return is_small(rows, inner, columns, kManyOfBfloats);
}

void multiply_small(const MatrixView& left, const MatrixView& right, const float* bias, float* result, bool adds) {
  const int64_t rows = left.rows, columns = right.columns;
  const int64_t done = multiply_turned(left, right, bias, result, adds);
  if (done == columns) return;
  if (bias != nullptr)
    for (int64_t row = 0; row < rows; ++row) std::copy(bias + done, bias + columns, result + row * columns + done);
  const MatrixView rest = from_column(right, done);
  const bool has_sum = adds || bias != nullptr;
  if (moved_elements(left.turned(), rows * rest.columns) < moved_elements(rest, 0))
    multiply_into(rest.turned(), left.turned(), {result + done, 1, columns}, has_sum);
  else multiply_into(left, rest, {result + done, columns, 1}, has_sum);
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
