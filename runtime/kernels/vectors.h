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

}  // namespace graphpipe::runtime
