#pragma once
// Products of matrices so small that a library's call costs more than the product: layers a few dozen wide.

#include <cstdint>

namespace graphpipe::runtime {

/// Rows and columns may lie in memory in any way.
struct MatrixView {
  const float* data = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0, column_stride = 1;
  MatrixView turned() const { return {data, columns, rows, column_stride, row_stride}; }
};

/// Floats of an operand or a result, at most.
inline constexpr int64_t kMaxSmallFloats = 1 << 16;

/// Whether [rows, inner] times [inner, columns] is worth it, and the processor has what it needs. Depends on nothing
/// else, so that all programs of a plan agree.
bool is_small_product(int64_t rows, int64_t inner, int64_t columns);
/// The same where operands are widened to floats first: calls with 16 bits cost libraries more.
bool is_small_product_of_bfloats(int64_t rows, int64_t inner, int64_t columns);

/// result [rows, columns], contiguous, = left times right, plus bias [columns] unless it is null; or adds the product
/// to what stands there. Sums go in order of the inner index on every processor. Needs: is_small_product().
void multiply_small(const MatrixView& left, const MatrixView& right, const float* bias, float* result, bool adds);

}  // namespace graphpipe::runtime
