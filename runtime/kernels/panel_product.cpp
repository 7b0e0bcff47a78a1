#include "runtime/kernels/panel_product.h"

#include "runtime/kernels/vectors.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

namespace graphpipe::runtime {
namespace {

/// Strides that the compiler knows where panels are dense, as a kernel writes them.
template <int kColumns>
struct DenseStrides {
  explicit DenseStrides(const PanelProduct& product) : left_row(product.left_stride) {}
  int64_t left_row;
  static constexpr int64_t left = 1, right = kColumns, results = kColumns;
};
struct GivenStrides {
  explicit GivenStrides(const PanelProduct& product)
      : left_row(product.left_stride),
        left(product.left_inner_stride),
        right(product.right_inner_stride),
        results(product.result_row_stride) {}
  int64_t left_row, left, right, results;
};
/// Of a left matrix that lies turned: addresses of many rows in one register.
struct TurnedStrides {
  explicit TurnedStrides(const PanelProduct& product)
      : left(product.left_inner_stride), right(product.right_inner_stride), results(product.result_row_stride) {}
  static constexpr int64_t left_row = 1;
  int64_t left, right, results;
};

/// kRows rows of one panel, whose sums stay in registers.
template <typename Vector, int kColumns, int kRows, typename Strides>
GRAPHPIPE_INLINE void rows_of_panel(const PanelProduct& product, const float* left, const float* right,
                                    float* results) {
  constexpr int kVectors = kColumns * sizeof(float) / sizeof(Vector);
  constexpr int kVectorLanes = kColumns / kVectors;
  typedef Vector Unaligned __attribute__((aligned(4)));
  const Strides strides(product);
  Vector sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
    for (int part = 0; part < kVectors; ++part)
      sums[row][part] = product.adds
                            ? *reinterpret_cast<const Unaligned*>(results + row * strides.results + part * kVectorLanes)
                            : Vector{};
  for (int64_t i = 0; i < product.inner; ++i) {
    Vector columns[kVectors];
    for (int part = 0; part < kVectors; ++part)
      columns[part] = *reinterpret_cast<const Unaligned*>(right + i * strides.right + part * kVectorLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row)
      for (int part = 0; part < kVectors; ++part)
        sums[row][part] += left[row * strides.left_row + i * strides.left] * columns[part];
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
    for (int part = 0; part < kVectors; ++part)
      *reinterpret_cast<Unaligned*>(results + row * strides.results + part * kVectorLanes) = sums[row][part];
}

/// Rows [first, rows) in groups of kRows, and what is left in smaller ones.
template <typename Vector, int kColumns, int kRows, typename Strides>
GRAPHPIPE_INLINE void multiply_rows(const PanelProduct& product, int64_t first) {
  const Strides strides(product);
  int64_t row = first;
  for (; row + kRows <= product.rows; row += kRows)
    for (int64_t panel = 0; panel < product.panels; ++panel)
      rows_of_panel<Vector, kColumns, kRows, Strides>(
          product, product.left + row * strides.left_row, product.right + panel * product.right_stride,
          product.results + panel * product.result_stride + row * strides.results);
  constexpr int kFewer = kRows == 6 ? 4 : kRows / 2;
  if constexpr (kFewer > 0)
    if (row < product.rows) multiply_rows<Vector, kColumns, kFewer, Strides>(product, row);
}

/// With strides that the compiler knows if they are those of dense panels.
template <typename Vector, int kColumns, int kRows>
GRAPHPIPE_INLINE void multiply(const PanelProduct& product) {
  const bool is_dense =
      product.left_inner_stride == 1 && product.right_inner_stride == kColumns && product.result_row_stride == kColumns;
  if (is_dense) multiply_rows<Vector, kColumns, kRows, DenseStrides<kColumns>>(product, 0);
  else if (product.left_stride == 1) multiply_rows<Vector, kColumns, kRows, TurnedStrides>(product, 0);
  else multiply_rows<Vector, kColumns, kRows, GivenStrides>(product, 0);
}

#if defined(__x86_64__)
GRAPHPIPE_AVX512 void multiply_avx512(const PanelProduct& product) { multiply<Vector16, kPanelColumns, 16>(product); }
GRAPHPIPE_AVX2 void multiply_avx2(const PanelProduct& product) { multiply<Vector8, kPanelColumns, 6>(product); }
GRAPHPIPE_AVX2 void multiply_narrow_avx2(const PanelProduct& product) {
  multiply<Vector8, kNarrowPanelColumns, 8>(product);
}
#endif

}  // namespace

void multiply_panels(const PanelProduct& product) {
#if defined(__x86_64__)
  if (has_avx512()) return multiply_avx512(product);
  multiply_avx2(product);
#else
  multiply<Vector8, kPanelColumns, 6>(product);
#endif
}

void multiply_narrow_panels(const PanelProduct& product) {
#if defined(__x86_64__)
  multiply_narrow_avx2(product);
#else
  multiply<Vector8, kNarrowPanelColumns, 8>(product);
#endif
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
