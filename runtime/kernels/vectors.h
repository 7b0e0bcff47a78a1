#pragma once
// Vectors of GCC's own, which any processor has in parts. Functions with such arguments are always inlined, so that no
// call has an ABI that depends on the instruction set.

#include <cstdint>

#include "runtime/kernels/vector_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace graphpipe::runtime {

using Vector8 = float __attribute__((vector_size(32)));
using Vector16 = float __attribute__((vector_size(64)));
using UnalignedVector8 = float __attribute__((vector_size(32), aligned(4)));
constexpr int64_t kVector8Lanes = 8;

GRAPHPIPE_INLINE Vector8 load8(const float* from) { return *reinterpret_cast<const UnalignedVector8*>(from); }
GRAPHPIPE_INLINE void store8(float* to, const Vector8& vector) { *reinterpret_cast<UnalignedVector8*>(to) = vector; }

/// Rows become columns.
GRAPHPIPE_INLINE void transpose(Vector8 (&square)[kVector8Lanes]) {
  Vector8 pairs[kVector8Lanes], quads[kVector8Lanes];
  for (int64_t i = 0; i < 4; ++i) {
    const Vector8 &a = square[2 * i], &b = square[2 * i + 1];
    pairs[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[2 * i + 1] = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t i = 0; i < 2; ++i) {
      const Vector8 &a = pairs[4 * half + i], &b = pairs[4 * half + 2 + i];
      quads[4 * half + 2 * i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
      quads[4 * half + 2 * i + 1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int64_t i = 0; i < 4; ++i) {
    square[i] = __builtin_shufflevector(quads[i], quads[4 + i], 0, 1, 2, 3, 8, 9, 10, 11);
    square[4 + i] = __builtin_shufflevector(quads[i], quads[4 + i], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

}  // namespace graphpipe::runtime
