#include "runtime/kernels/bfloats.h"

#include "runtime/kernels/vector_loops.h"

// The loops are written so that the compiler vectorises them, whatever instruction set the rest is compiled for.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

namespace graphpipe::runtime {
namespace {

GRAPHPIPE_INLINE void widen_some(const uint16_t* __restrict__ from, int64_t count, float* __restrict__ to) {
  for (int64_t i = 0; i < count; ++i) to[i] = widened(from[i]);
}

GRAPHPIPE_INLINE void narrow_some(const float* __restrict__ from, int64_t count, uint16_t* __restrict__ to) {
  for (int64_t i = 0; i < count; ++i) narrow_to(from[i], to[i]);
}

#if defined(__x86_64__)
GRAPHPIPE_AVX2 void widen_avx2(const uint16_t* from, int64_t count, float* to) { widen_some(from, count, to); }
GRAPHPIPE_AVX512 void widen_avx512(const uint16_t* from, int64_t count, float* to) { widen_some(from, count, to); }
GRAPHPIPE_AVX2 void narrow_avx2(const float* from, int64_t count, uint16_t* to) { narrow_some(from, count, to); }
GRAPHPIPE_AVX512 void narrow_avx512(const float* from, int64_t count, uint16_t* to) { narrow_some(from, count, to); }
#endif

}  // namespace

void widen(const uint16_t* from, int64_t count, float* to) {
#if defined(__x86_64__)
  if (has_avx512()) return widen_avx512(from, count, to);
  if (has_avx2()) return widen_avx2(from, count, to);
#endif
  widen_some(from, count, to);
}

void narrow(const float* from, int64_t count, uint16_t* to) {
#if defined(__x86_64__)
  if (has_avx512()) return narrow_avx512(from, count, to);
  if (has_avx2()) return narrow_avx2(from, count, to);
#endif
  narrow_some(from, count, to);
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace graphpipe::runtime {

bool is_plain_bfloat(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kBFloat16 &&
         !(at::GradMode::is_enabled() && tensor.requires_grad());
}
bool are_bfloats(const at::Tensor& tensor) { return is_plain_bfloat(tensor) && tensor.is_contiguous(); }

at::Tensor new_bfloats(at::IntArrayRef sizes) { return at::Tensor(at::detail::empty_cpu(sizes, at::kBFloat16)); }

const uint16_t* bits_of(const at::Tensor& tensor) {
  return reinterpret_cast<const uint16_t*>(tensor.const_data_ptr<at::BFloat16>());
}
uint16_t* mutable_bits_of(const at::Tensor& tensor) {
  return reinterpret_cast<uint16_t*>(tensor.mutable_data_ptr<at::BFloat16>());
}

at::Tensor narrowed(const float* from, at::IntArrayRef sizes) {
  at::Tensor result = new_bfloats(sizes);
  narrow(from, result.numel(), mutable_bits_of(result));
  return result;
}

at::Tensor cast(const at::Tensor& x, at::ScalarType type) {
  const int64_t count = x.numel();
  if (type == at::kBFloat16 && loop_takes(x)) {
    at::Tensor result = new_bfloats(x.sizes());
    const float* from = x.const_data_ptr<float>();
    uint16_t* to = mutable_bits_of(result);
    for_parts(count, kElementsPerThread,
              [&](int64_t begin, int64_t end) { narrow(from + begin, end - begin, to + begin); });
    return result;
  }
  if (type == at::kFloat && are_bfloats(x)) {
    at::Tensor result = new_floats(x.sizes());
    const uint16_t* from = bits_of(x);
    float* to = result.mutable_data_ptr<float>();
    for_parts(count, kElementsPerThread,
              [&](int64_t begin, int64_t end) { widen(from + begin, end - begin, to + begin); });
    return result;
  }
  return x.to(type);
}

}  // namespace graphpipe::runtime
