#pragma once
// What the loops of this folder share: they are written so that the compiler vectorises them, once for every processor
// and once for those with AVX2, whatever flags the rest is compiled with.

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

}  // namespace graphpipe::runtime
