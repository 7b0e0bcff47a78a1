#pragma once
// Products by a matrix whose columns lie as the rows of another, as the weights of most linear layers do: squares of it
// are turned in registers while others are multiplied, where copies in panels would be written and read again.

#include <cstdint>

#include "runtime/kernels/small_product.h"

namespace graphpipe::runtime {

/// The first columns of what multiply_small() computes, as many as whole vectors hold; returns how many. 0: one of the
/// matrices lies otherwise, the inner index has fewer than eight values, or the processor has too few registers
/// (has_avx512).
int64_t multiply_turned(const MatrixView& left, const MatrixView& right, const float* bias, float* result, bool adds);

}  // namespace graphpipe::runtime
