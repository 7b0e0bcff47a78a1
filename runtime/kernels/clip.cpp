#include "runtime/kernels/clip.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/where.h>

#include <cstdint>

#include "runtime/kernels/vector_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math")
#endif

namespace graphpipe::runtime {
namespace {

struct Clipped {
  const float *gradient, *x;
  float low, high;
  float* of_x;
};

GRAPHPIPE_INLINE void pass_inside(const Clipped& clipped, int64_t begin, int64_t end) {
  const auto [gradient, x, low, high, of_x] = clipped;
  for (int64_t i = begin; i < end; ++i) {
    const float passed = gradient[i];  // read in any case, as vectors are
    of_x[i] = x[i] >= low && x[i] <= high ? passed : 0;
  }
}

#if defined(__x86_64__)
GRAPHPIPE_AVX2 void pass_inside_avx2(const Clipped& clipped, int64_t begin, int64_t end) {
  pass_inside(clipped, begin, end);
}
#endif

}  // namespace

at::Tensor clip_gradient(const at::Tensor& gradient, const at::Tensor& x, double low, double high) {
  if (!loop_takes(gradient) || !loop_takes(x)) return at::where(x.ge(low).logical_and_(x.le(high)), gradient, 0.0);
  at::Tensor of_x = new_floats(x.sizes());
  const Clipped clipped{gradient.const_data_ptr<float>(), x.const_data_ptr<float>(), static_cast<float>(low),
                        static_cast<float>(high), of_x.mutable_data_ptr<float>()};
  for_parts(x.numel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
#if defined(__x86_64__)
    if (has_avx2()) return pass_inside_avx2(clipped, begin, end);
#endif
    pass_inside(clipped, begin, end);
  });
  return of_x;
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
