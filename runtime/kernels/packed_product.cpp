#include "runtime/kernels/packed_product.h"

#include <algorithm>
#include <memory>

#include "runtime/kernels/vectors.h"
#include "support/integer_math.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

namespace graphpipe::runtime {
namespace {

/// Columns of a tile are those of two vectors; its rows leave registers for them and for an element of the left.
template <typename Vector>
struct TileOf;
template <>
struct TileOf<Vector8> {
  static constexpr int64_t kRows = 6, kColumns = 16;
};
template <>
struct TileOf<Vector16> {
  static constexpr int64_t kRows = 8, kColumns = 32;
};

/// Rows of a block of the left operand, which takes a part of a second cache: of 512 KiB where vectors are short, and
/// of 1 MiB where they are long.
template <typename Vector>
constexpr int64_t kBlockRows = 30 * TileOf<Vector>::kRows;
template <>
constexpr int64_t kBlockRows<Vector16> = 64 * TileOf<Vector16>::kRows;

/// Fewer multiplications are not worth another thread.
constexpr int64_t kMultiplicationsPerThread = 1 << 18;
/// Rows that multiply a panel where it lies: a copy would not be read often enough.
constexpr int64_t kFewRows = 16;

/// The smallest multiple of `unit` of which as few parts cover `count` as of parts of `largest`.
int64_t even_part(int64_t count, int64_t largest, int64_t unit) {
  return round_up(ceil_div(count, ceil_div(count, largest)), unit);
}

/// Of a thread: a block of the left operand and a panel of the right one, behind both of which a vector is written, and
/// a tile of which some columns are the result's.
struct Packed {
  alignas(64) float left[kBlockRows<Vector16> * kPackedInner + kVector8Lanes];
  alignas(64) float right[TileOf<Vector16>::kColumns * kPackedInner + kVector8Lanes];
  alignas(64) float tile[TileOf<Vector16>::kRows * TileOf<Vector16>::kColumns];
};

/// Made when the thread first needs it.
Packed& packed() {
  thread_local const std::unique_ptr<Packed> all = std::make_unique<Packed>();
  return *all;
}

/// Rows of the left operand or columns of the right one, `stride` floats apart.
struct Lines {
  const float* data;
  int64_t count, stride, inner_stride;
};

/// Eight inner values of eight lines at a time; returns how many inner values those are.
template <int64_t kWidth>
GRAPHPIPE_INLINE int64_t pack_squares(const Lines& lines, int64_t inner, float* to) {
  int64_t i = 0;
  for (; i + kVector8Lanes <= inner; i += kVector8Lanes)
    for (int64_t part = 0; part < kWidth; part += kVector8Lanes) {
      Vector8 square[kVector8Lanes];
      const float* const from = lines.data + part * lines.stride + i;
#pragma GCC unroll 8
      for (int64_t line = 0; line < kVector8Lanes; ++line) square[line] = load8(from + line * lines.stride);
      transpose(square);
      // Where a panel is narrower than a vector, the next inner value overwrites what is too much.
#pragma GCC unroll 8
      for (int64_t k = 0; k < kVector8Lanes; ++k) store8(to + (i + k) * kWidth + part, square[k]);
    }
  return i;
}

/// Up to kWidth lines in order of the inner index, zeros in place of missing ones.
template <int64_t kWidth>
GRAPHPIPE_INLINE void pack_panel(const Lines& lines, int64_t inner, float* to) {
  constexpr int64_t kSquareLines = round_up(kWidth, kVector8Lanes);
  int64_t i = 0;
  if (lines.inner_stride == 1 && lines.count >= kSquareLines) i = pack_squares<kWidth>(lines, inner, to);
  else if (lines.stride == 1 && lines.count >= kWidth)
    for (; i < inner; ++i)
      for (int64_t line = 0; line < kWidth; ++line) to[i * kWidth + line] = lines.data[i * lines.inner_stride + line];
  const int64_t count = std::min(lines.count, kWidth);
  for (; i < inner; ++i) {
    const float* const from = lines.data + i * lines.inner_stride;
    for (int64_t line = 0; line < count; ++line) to[i * kWidth + line] = from[line * lines.stride];
    for (int64_t line = count; line < kWidth; ++line) to[i * kWidth + line] = 0;
  }
}

/// Panels of kWidth lines, one after the other.
template <int64_t kWidth>
GRAPHPIPE_INLINE void pack_panels(Lines lines, int64_t inner, float* to) {
  for (; lines.count > 0; lines.count -= kWidth, lines.data += kWidth * lines.stride, to += kWidth * inner)
    pack_panel<kWidth>(lines, inner, to);
}

/// A tile of the result: the product of a panel's rows and columns plus `base`, which is null, a row of biases
/// (base_stride 0), or the result itself.
struct Tile {
  int64_t inner;
  const float *left, *right;
  int64_t right_stride;
  const float* base;
  int64_t base_stride;
  float* result;
  int64_t result_stride;
};

/// kRows rows of as many columns as kVectors hold, whose sums stay in registers.
template <typename Vector, int kVectors, int kRows>
GRAPHPIPE_INLINE void multiply_rows(const Tile& tile, int64_t row) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  typedef Vector Unaligned __attribute__((aligned(4)));
  const auto at = [](const float* from) __attribute__((always_inline))->const Unaligned& {
    return *reinterpret_cast<const Unaligned*>(from);
  };
  Vector sums[kRows][kVectors] = {};
  // Before its first sum is there, so that the result is in a cache when it is written.
#pragma GCC unroll 8
  for (int k = 0; k < kRows; ++k)
    for (int part = 0; part < kVectors; ++part)
      __builtin_prefetch(tile.result + (row + k) * tile.result_stride + part * kLanes, /*rw=*/1);
  const float *left = tile.left + row, *right = tile.right;
#pragma GCC unroll 2
  for (int64_t i = 0; i < tile.inner; ++i) {
    Vector columns[kVectors];
    for (int part = 0; part < kVectors; ++part) columns[part] = at(right + part * kLanes);
#pragma GCC unroll 8
    for (int k = 0; k < kRows; ++k)
      for (int part = 0; part < kVectors; ++part) sums[k][part] += left[k] * columns[part];
    left += TileOf<Vector>::kRows;
    right += tile.right_stride;
  }
  const float* base = tile.base == nullptr ? nullptr : tile.base + row * tile.base_stride;
  float* result = tile.result + row * tile.result_stride;
#pragma GCC unroll 8
  for (int k = 0; k < kRows; ++k, result += tile.result_stride) {
    if (base != nullptr) {
      for (int part = 0; part < kVectors; ++part) sums[k][part] += at(base + part * kLanes);
      base += tile.base_stride;
    }
    for (int part = 0; part < kVectors; ++part) *reinterpret_cast<Unaligned*>(result + part * kLanes) = sums[k][part];
  }
}

/// The last `rows` of a tile's rows, fewer than kRows * 2.
template <typename Vector, int kVectors, int kRows>
GRAPHPIPE_INLINE void multiply_last_rows(const Tile& tile, int64_t row, int64_t rows) {
  if (row + kRows <= rows) {
    multiply_rows<Vector, kVectors, kRows>(tile, row);
    row += kRows;
  }
  if constexpr (kRows > 1)
    if (row < rows) multiply_last_rows<Vector, kVectors, kRows / 2>(tile, row, rows);
}

template <typename Vector, int kVectors = 2>
GRAPHPIPE_INLINE void multiply_tile(const Tile& tile, int64_t rows) {
  constexpr int kRows = TileOf<Vector>::kRows;
  if (rows == kRows) multiply_rows<Vector, kVectors, kRows>(tile, 0);
  else multiply_last_rows<Vector, kVectors, 4>(tile, 0, rows);
}

/// Of which the result has only the first `columns`: by way of a tile of the thread's own.
template <typename Vector>
GRAPHPIPE_INLINE void multiply_tile_of_few(const Tile& tile, int64_t rows, int64_t columns, float* own) {
  constexpr int64_t kColumns = TileOf<Vector>::kColumns;
  Tile whole = tile;
  whole.base = nullptr;
  whole.result = own;
  whole.result_stride = kColumns;
  if (columns > kColumns / 2) multiply_tile<Vector>(whole, rows);
  else multiply_tile<Vector, 1>(whole, rows);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const float sum = own[row * kColumns + column];
      tile.result[row * tile.result_stride + column] =
          tile.base == nullptr ? sum : sum + tile.base[row * tile.base_stride + column];
    }
}

/// Rows and columns of a result, and where they are.
struct ResultPart {
  MatrixView left, right;
  const float* base;
  int64_t base_stride;
  float* result;
  int64_t result_stride;
};

/// A block of rows, packed, by all columns: a panel of columns at a time.
template <typename Vector>
GRAPHPIPE_INLINE void multiply_block(const ResultPart& part, Packed& copies) {
  using Of = TileOf<Vector>;
  const int64_t inner = part.left.columns, rows = part.left.rows;
  pack_panels<Of::kRows>({part.left.data, rows, part.left.row_stride, part.left.column_stride}, inner, copies.left);
  for (int64_t column = 0; column < part.right.columns; column += Of::kColumns) {
    const int64_t columns = std::min(Of::kColumns, part.right.columns - column);
    const float* right = part.right.data + column * part.right.column_stride;
    const bool stays = rows <= kFewRows && columns == Of::kColumns && part.right.column_stride == 1;
    if (!stays)
      pack_panel<Of::kColumns>({right, columns, part.right.column_stride, part.right.row_stride}, inner, copies.right);
    for (int64_t row = 0; row < rows; row += Of::kRows) {
      const Tile tile{inner,
                      copies.left + row * inner,
                      stays ? right : copies.right,
                      stays ? part.right.row_stride : Of::kColumns,
                      part.base == nullptr ? nullptr : part.base + row * part.base_stride + column,
                      part.base_stride,
                      part.result + row * part.result_stride + column,
                      part.result_stride};
      const int64_t few = std::min(Of::kRows, rows - row);
      if (columns == Of::kColumns) multiply_tile<Vector>(tile, few);
      else multiply_tile_of_few<Vector>(tile, few, columns, copies.tile);
    }
  }
}

template <typename Vector>
GRAPHPIPE_INLINE void multiply_part(const ResultPart& whole) {
  Packed& copies = packed();
  const int64_t inner = whole.left.columns, rows = whole.left.rows;
  const int64_t inner_part = even_part(inner, kPackedInner, kVector8Lanes),
                block = even_part(rows, kBlockRows<Vector>, TileOf<Vector>::kRows);
  for (int64_t i = 0; i < inner; i += inner_part)
    for (int64_t row = 0; row < rows; row += block) {
      ResultPart part = whole;
      part.left.data += row * whole.left.row_stride + i * whole.left.column_stride;
      part.left.rows = std::min(block, rows - row);
      part.left.columns = part.right.rows = std::min(inner_part, inner - i);
      part.right.data += i * whole.right.row_stride;
      part.result += row * whole.result_stride;
      if (i > 0) part.base = part.result, part.base_stride = part.result_stride;
      else if (part.base != nullptr) part.base += row * part.base_stride;
      multiply_block<Vector>(part, copies);
    }
}

#if defined(__x86_64__)
GRAPHPIPE_AVX512 void multiply_avx512(const ResultPart& part) { multiply_part<Vector16>(part); }
GRAPHPIPE_AVX2 void multiply_avx2(const ResultPart& part) { multiply_part<Vector8>(part); }
#endif

void multiply(const ResultPart& part) {
#if defined(__x86_64__)
  if (has_avx512()) return multiply_avx512(part);
  if (has_avx2()) return multiply_avx2(part);
#endif
  multiply_part<Vector8>(part);
}

/// Rows or columns [first, last) of the whole.
ResultPart rows_of(ResultPart part, int64_t first, int64_t last) {
  part.left.data += first * part.left.row_stride;
  part.left.rows = last - first;
  if (part.base != nullptr) part.base += first * part.base_stride;
  part.result += first * part.result_stride;
  return part;
}
ResultPart columns_of(ResultPart part, int64_t first, int64_t last) {
  part.right.data += first * part.right.column_stride;
  part.right.columns = last - first;
  if (part.base != nullptr) part.base += first;
  part.result += first;
  return part;
}

/// The longer side of the result in parts, one for each thread.
void multiply_whole(const ResultPart& whole) {
  const int64_t rows = whole.left.rows, columns = whole.right.columns;
  constexpr int64_t kUnit = TileOf<Vector16>::kColumns;
  const bool by_rows = rows > columns;
  const int64_t count = by_rows ? rows : columns, units = ceil_div(count, kUnit);
  const int64_t grain =
      ceil_div(kMultiplicationsPerThread, std::max<int64_t>(1, whole.left.columns * std::min(rows, columns) * kUnit));
  for_parts(units, grain, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kUnit, last = std::min(count, end * kUnit);
    multiply(by_rows ? rows_of(whole, first, last) : columns_of(whole, first, last));
  });
}

}  // namespace

bool has_packed_product() {
#if defined(__x86_64__)
  return has_avx2();
#else
  return true;
#endif
}

void multiply_packed(const MatrixView& left, const MatrixView& right, const float* bias, float* result, bool adds) {
  const int64_t columns = right.columns;
  multiply_whole({left, right, adds ? result : bias, adds ? columns : 0, result, columns});
}

void multiply_packed(const MatrixView& left, const MatrixView& right, float* result, int64_t result_stride, bool adds) {
  multiply_whole({left, right, adds ? result : nullptr, result_stride, result, result_stride});
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
