#pragma once
// A matrix times panels of columns that lie in memory one after the other: the inner loop of products whose operands a
// kernel has written in this order. Each element is summed in order of the inner index, whatever the vectors.

#include <cstdint>

namespace graphpipe::runtime {

/// The columns of a wide panel and of a narrow one.
constexpr int64_t kPanelColumns = 16, kNarrowPanelColumns = 8;

/// results[panel][row][column] = sum over i of left[row][i] * right[panel][i][column], or added to what stands there.
/// A stride is the floats from one to the next; those given are of dense panels, the fastest. Columns of a panel lie
/// side by side; rows may lie apart.
struct PanelProduct {
  int64_t rows = 0, inner = 0, panels = 0;
  const float* left = nullptr;
  int64_t left_stride = 0, left_inner_stride = 1;
  const float* right = nullptr;
  int64_t right_stride = 0, right_inner_stride = kPanelColumns;
  float* results = nullptr;
  int64_t result_stride = 0, result_row_stride = kPanelColumns;
  bool adds = false;
};

/// Of panels of kPanelColumns. Needs, on x86, a processor with AVX2 (vector_loops.h: has_avx2).
void multiply_panels(const PanelProduct& product);
/// Of panels of kNarrowPanelColumns.
void multiply_narrow_panels(const PanelProduct& product);

}  // namespace graphpipe::runtime
