#include "runtime/kernels/turned_product.h"

#include "runtime/kernels/vectors.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

namespace graphpipe::runtime {

#if defined(__x86_64__)
namespace {

using UnalignedVector16 = float __attribute__((vector_size(64), aligned(4)));
constexpr int64_t kVector16Lanes = 16;

/// As transpose() of vectors.h, of the two squares in the halves of the vectors.
GRAPHPIPE_INLINE void transpose_halves(Vector16 (&squares)[kVector8Lanes]) {
  Vector16 pairs[kVector8Lanes], quads[kVector8Lanes];
#pragma GCC unroll 4
  for (int64_t i = 0; i < 4; ++i) {
    const Vector16 &a = squares[2 * i], &b = squares[2 * i + 1];
    pairs[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    pairs[2 * i + 1] = __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
#pragma GCC unroll 2
  for (int64_t half = 0; half < 2; ++half)
#pragma GCC unroll 2
    for (int64_t i = 0; i < 2; ++i) {
      const Vector16 &a = pairs[4 * half + i], &b = pairs[4 * half + 2 + i];
      quads[4 * half + 2 * i] = __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      quads[4 * half + 2 * i + 1] =
          __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
#pragma GCC unroll 4
  for (int64_t i = 0; i < 4; ++i) {
    const Vector16 &a = quads[i], &b = quads[4 + i];
    squares[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
    squares[4 + i] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  }
}

/// The rows `inner`, .. `inner` + 7 of sixteen columns that lie `stride` floats apart.
GRAPHPIPE_INLINE void load_turned(const float* columns, int64_t stride, int64_t inner,
                                  Vector16 (&rows)[kVector8Lanes]) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < kVector8Lanes; ++i) {
    const Vector8 a = load8(columns + i * stride + inner), b = load8(columns + (kVector8Lanes + i) * stride + inner);
    rows[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  transpose_halves(rows);
}

struct TurnedProduct {
  MatrixView left, right;
  const float* start;  // null: zeros
  int64_t start_stride;
  float* result;
  int64_t result_stride;
};

/// kRows rows of sixteen columns, whose sums stay in registers.
template <int kRows>
GRAPHPIPE_INLINE void rows_of_columns(const TurnedProduct& of, int64_t row, int64_t column) {
  const float* const left = of.left.data + row * of.left.row_stride;
  const float* const columns = of.right.data + column * of.right.column_stride;
  float* const result = of.result + row * of.result_stride + column;
  const int64_t stride = of.left.row_stride, whole = of.left.columns / kVector8Lanes * kVector8Lanes;
  Vector16 sums[kRows];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
    sums[i] = of.start == nullptr
                  ? Vector16{}
                  : *reinterpret_cast<const UnalignedVector16*>(of.start + (row + i) * of.start_stride + column);
  for (int64_t inner = 0; inner < whole; inner += kVector8Lanes) {
    Vector16 rows[kVector8Lanes];
    load_turned(columns, of.right.column_stride, inner, rows);
#pragma GCC unroll 8
    for (int64_t k = 0; k < kVector8Lanes; ++k)
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sums[i] += left[i * stride + inner + k] * rows[k];
  }
  if (whole < of.left.columns) {
    const int64_t last = of.left.columns - kVector8Lanes;  // overlaps with what is multiplied already
    Vector16 rows[kVector8Lanes];
    load_turned(columns, of.right.column_stride, last, rows);
    for (int64_t inner = whole; inner < of.left.columns; ++inner)
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sums[i] += left[i * stride + inner] * rows[inner - last];
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) *reinterpret_cast<UnalignedVector16*>(result + i * of.result_stride) = sums[i];
}

/// Rows from `row` on in groups of kRows, and what is left in smaller ones.
template <int kRows>
GRAPHPIPE_INLINE void multiply_rows_from(const TurnedProduct& of, int64_t row, int64_t columns) {
  for (; row + kRows <= of.left.rows; row += kRows)
    for (int64_t column = 0; column < columns; column += kVector16Lanes) rows_of_columns<kRows>(of, row, column);
  if constexpr (kRows > 1)
    if (row < of.left.rows) multiply_rows_from<kRows / 2>(of, row, columns);
}

GRAPHPIPE_AVX512 void multiply_columns(const TurnedProduct& of, int64_t columns) {
  multiply_rows_from<8>(of, 0, columns);
}

}  // namespace
#endif

int64_t multiply_turned(const MatrixView& left, const MatrixView& right, const float* bias, float* result, bool adds) {
#if defined(__x86_64__)
  const bool lies_so = left.column_stride == 1 && right.row_stride == 1 && right.column_stride != 1;
  if (has_avx512() && lies_so && left.columns >= kVector8Lanes) {
    const int64_t columns = right.columns / kVector16Lanes * kVector16Lanes;
    const float* const start = bias != nullptr ? bias : adds ? result : nullptr;
    multiply_columns({left, right, start, bias != nullptr ? 0 : right.columns, result, right.columns}, columns);
    return columns;
  }
#else
  static_cast<void>(left), static_cast<void>(right), static_cast<void>(bias), static_cast<void>(result);
  static_cast<void>(adds);
#endif
  return 0;
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
