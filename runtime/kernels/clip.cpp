#include "runtime/kernels/clip.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/where.h>

#include <cstdint>

#include "runtime/kernels/bfloats.h"
#include "runtime/kernels/vector_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math")
#endif

namespace graphpipe::runtime {
namespace {

/// Of floats or, by their bits, of bfloat16.
template <typename Element>
struct Clipped {
  const Element *gradient, *x;
  float low, high;
  Element* of_x;
};

template <typename Element>
GRAPHPIPE_INLINE void pass_inside(const Clipped<Element>& clipped, int64_t begin, int64_t end) {
  const auto [gradient, x, low, high, of_x] = clipped;
  for (int64_t i = begin; i < end; ++i) {
    const Element passed = gradient[i];  // read in any case, as vectors are
    const float number = widened(x[i]);
    of_x[i] = number >= low && number <= high ? passed : Element{0};
  }
}

#if defined(__x86_64__)
template <typename Element>
GRAPHPIPE_AVX2 void pass_inside_avx2(const Clipped<Element>& clipped, int64_t begin, int64_t end) {
  pass_inside(clipped, begin, end);
}
#endif

template <typename Element>
void pass_inside_bounds(const Clipped<Element>& clipped, int64_t count) {
  for_parts(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
#if defined(__x86_64__)
    if (has_avx2()) return pass_inside_avx2(clipped, begin, end);
#endif
    pass_inside(clipped, begin, end);
  });
}

}  // namespace

at::Tensor clip_gradient(const at::Tensor& gradient, const at::Tensor& x, double low, double high) {
  const auto lowest = static_cast<float>(low), highest = static_cast<float>(high);
  if (are_bfloats(gradient) && are_bfloats(x)) {
    uint16_t bounds[2];  // as the clip has them
    narrow_to(lowest, bounds[0]);
    narrow_to(highest, bounds[1]);
    at::Tensor of_x = new_bfloats(x.sizes());
    pass_inside_bounds<uint16_t>(
        {bits_of(gradient), bits_of(x), widened(bounds[0]), widened(bounds[1]), mutable_bits_of(of_x)}, x.numel());
    return of_x;
  }
  if (!loop_takes(gradient) || !loop_takes(x)) return at::where(x.ge(low).logical_and_(x.le(high)), gradient, 0.0);
  at::Tensor of_x = new_floats(x.sizes());
  pass_inside_bounds<float>({elements_of(gradient), elements_of(x), lowest, highest, of_x.mutable_data_ptr<float>()},
                            x.numel());
  return of_x;
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
