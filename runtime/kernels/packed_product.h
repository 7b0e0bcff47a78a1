#pragma once
// Products of large matrices with loops of our own, after Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication" (ACM TOMS 34:3, 2008): blocks of both operands are copied in the order in which they are read, one to
// the processor's second cache, the other to its first, and tiles of the result stay in registers.

#include "runtime/kernels/small_product.h"

namespace graphpipe::runtime {

/// Whether this processor has what the loops need.
bool has_packed_product();

/// result [rows, columns], contiguous, = left times right, plus bias [columns] unless it is null; or adds the product
/// to what stands there. Sums of up to kPackedInner products go in order of the inner index; a longer index is divided
/// evenly, in multiples of eight, and the sums are added one after the other. So bits depend neither on the number of
/// threads nor on the processor. Asks for no memory after a thread's first call. Needs: has_packed_product(), and sizes
/// of at least 1.
void multiply_packed(const MatrixView& left, const MatrixView& right, const float* bias, float* result, bool adds);
/// The same without biases, where rows of the result lie `result_stride` floats apart. Processors without
/// has_packed_product() have it too, but slower and with roundings of their own.
void multiply_packed(const MatrixView& left, const MatrixView& right, float* result, int64_t result_stride, bool adds);

/// Products of one sum, at most.
inline constexpr int64_t kPackedInner = 384;

}  // namespace graphpipe::runtime
