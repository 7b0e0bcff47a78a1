#pragma once
// A matrix times panels of sixteen columns that lie in memory one after the other: the inner loop of products whose
// operands a kernel has written in this order. Each element is summed in order of the inner index, whatever the
// vectors.

#include "runtime/kernels/vector_loops.h"

namespace graphpipe::runtime {

/// results[panel][row][16] = sum over i of left[row][i] * right[panel][i][16], or added to what stands there.
struct PanelProduct {
  int64_t rows = 0, inner = 0, panels = 0;
  const float* left = nullptr;
  int64_t left_stride = 0;  // from row to row
  const float* right = nullptr;
  int64_t right_stride = 0;  // from panel to panel
  float* results = nullptr;
  int64_t result_stride = 0;  // from panel to panel
  bool adds = false;
};

constexpr int64_t kPanelColumns = 16;

/// kRows rows of one panel, whose sums stay in registers.
template <typename Vector, int kRows>
GRAPHPIPE_INLINE void rows_of_panel(const PanelProduct& product, const float* left, const float* right,
                                    float* results) {
  constexpr int kVectors = kPanelColumns * sizeof(float) / sizeof(Vector);
  constexpr int kVectorLanes = kPanelColumns / kVectors;
  typedef Vector Unaligned __attribute__((aligned(4)));
  const auto at = [](auto* floats, int row, int part) __attribute__((always_inline)) {
    return floats + row * kPanelColumns + part * kVectorLanes;
  };
  Vector sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
    for (int part = 0; part < kVectors; ++part)
      sums[row][part] = product.adds ? *reinterpret_cast<const Unaligned*>(at(results, row, part)) : Vector{};
  for (int64_t i = 0; i < product.inner; ++i) {
    Vector columns[kVectors];
    for (int part = 0; part < kVectors; ++part)
      columns[part] = *reinterpret_cast<const Unaligned*>(at(right + i * kPanelColumns, 0, part));
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row)
      for (int part = 0; part < kVectors; ++part)
        sums[row][part] += left[row * product.left_stride + i] * columns[part];
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
    for (int part = 0; part < kVectors; ++part) *reinterpret_cast<Unaligned*>(at(results, row, part)) = sums[row][part];
}

/// Rows [first, rows) in groups of kRows, and what is left in smaller ones.
template <typename Vector, int kRows>
GRAPHPIPE_INLINE void multiply_rows(const PanelProduct& product, int64_t first) {
  int64_t row = first;
  for (; row + kRows <= product.rows; row += kRows)
    for (int64_t panel = 0; panel < product.panels; ++panel)
      rows_of_panel<Vector, kRows>(product, product.left + row * product.left_stride,
                                   product.right + panel * product.right_stride,
                                   product.results + panel * product.result_stride + row * kPanelColumns);
  constexpr int kFewer = kRows == 6 ? 4 : kRows / 2;
  if constexpr (kFewer > 0)
    if (row < product.rows) multiply_rows<Vector, kFewer>(product, row);
}

}  // namespace graphpipe::runtime
