#include "runtime/kernels/small_product.h"

#include <algorithm>

#include "runtime/kernels/panel_product.h"
#include "runtime/kernels/vector_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

namespace graphpipe::runtime {
namespace {

/// With more multiplications, libraries are faster (docs/performance.md, "Kernels").
constexpr int64_t kMaxMultiplications = 1 << 17;
/// Floats of an operand or a result, in panels.
constexpr int64_t kMaxFloats = 1 << 13;

int64_t in_panels(int64_t count, int64_t columns) { return (count + columns - 1) / columns * columns; }

/// Where operands are copied to whose columns do not lie side by side, and where such results come from.
struct Buffers {
  alignas(64) float right[kMaxFloats], results[kMaxFloats];
};
thread_local Buffers buffers;

/// Panels of kColumns columns from `first` on, the last filled up with zeros.
template <int64_t kColumns>
void write_panels(const MatrixView& matrix, int64_t first) {
  float* to = buffers.right;
  for (; first < matrix.columns; first += kColumns) {
    const int64_t count = std::min(kColumns, matrix.columns - first);
    const float* from = matrix.data + first * matrix.column_stride;
    for (int64_t row = 0; row < matrix.rows; ++row, to += kColumns, from += matrix.row_stride) {
      for (int64_t i = 0; i < count; ++i) to[i] = from[i * matrix.column_stride];
      for (int64_t i = count; i < kColumns; ++i) to[i] = 0;
    }
  }
}

/// Where an element of the result goes.
struct Target {
  float* data;
  int64_t row_stride, column_stride;
};

/// Columns from `first` on, by way of the buffers.
template <int64_t kColumns>
void multiply_copies(const MatrixView& left, const MatrixView& right, int64_t first, const Target& target, bool adds) {
  write_panels<kColumns>(right, first);
  PanelProduct product{.rows = left.rows, .inner = left.columns};
  product.panels = (right.columns - first + kColumns - 1) / kColumns;
  product.left = left.data;
  product.left_stride = left.row_stride;
  product.left_inner_stride = left.column_stride;
  product.right = buffers.right;
  product.right_stride = left.columns * kColumns;
  product.right_inner_stride = kColumns;
  product.results = buffers.results;
  product.result_stride = left.rows * kColumns;
  product.result_row_stride = kColumns;
  if constexpr (kColumns == kPanelColumns) multiply_panels(product);
  else multiply_narrow_panels(product);
  const float* from = buffers.results;
  for (; first < right.columns; first += kColumns) {
    const int64_t count = std::min(kColumns, right.columns - first);
    for (int64_t row = 0; row < left.rows; ++row, from += kColumns) {
      float* to = target.data + row * target.row_stride + first * target.column_stride;
      if (adds)
        for (int64_t i = 0; i < count; ++i) to[i * target.column_stride] += from[i];
      else
        for (int64_t i = 0; i < count; ++i) to[i * target.column_stride] = from[i];
    }
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

}  // namespace

bool is_small_product(int64_t rows, int64_t inner, int64_t columns) {
  if (!has_avx2() || rows < 1 || inner < 1 || columns < 1) return false;
  if (std::max({rows, inner, columns}) > kMaxFloats || rows * inner * columns > kMaxMultiplications) return false;
  const auto fits = [](int64_t a, int64_t b) { return a * in_panels(b, kPanelColumns) <= kMaxFloats; };
  return fits(rows, inner) && fits(inner, rows) && fits(inner, columns) && fits(columns, inner) &&
         fits(rows, columns) && fits(columns, rows);
}

void multiply_small(const MatrixView& left, const MatrixView& right, const float* bias, float* result, bool adds) {
  const int64_t rows = left.rows, columns = right.columns;
  for (int64_t row = 0; bias != nullptr && row < rows; ++row) std::copy_n(bias, columns, result + row * columns);
  const bool has_sum = adds || bias != nullptr;
  if (moved_elements(left.turned(), rows * columns) < moved_elements(right, 0))
    multiply_into(right.turned(), left.turned(), {result, 1, columns}, has_sum);
  else multiply_into(left, right, {result, columns, 1}, has_sum);
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
