#pragma once
// What the loops of this folder share: they are written so that the compiler vectorises them, once for every processor
// and once for those with AVX2, whatever flags the rest is compiled with.

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>

#define GRAPHPIPE_INLINE inline __attribute__((always_inline))

#if defined(__x86_64__)
#define GRAPHPIPE_AVX2 __attribute__((target("avx2,fma")))
#endif

namespace graphpipe::runtime {

/// Whether functions marked GRAPHPIPE_AVX2 may be called.
inline bool has_avx2() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  return has;
#else
  return false;
#endif
}

/// Less is not worth another thread.
inline constexpr int64_t kElementsPerThread = 1 << 15;

/// Whether a loop of this folder takes the tensor: floats of the CPU that lie together, of which no gradient is
/// recorded.
inline bool loop_takes(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
         !(at::GradMode::is_enabled() && tensor.requires_grad());
}

}  // namespace graphpipe::runtime
