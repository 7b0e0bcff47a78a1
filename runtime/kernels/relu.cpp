#include "runtime/kernels/relu.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/threshold_backward.h>

#include <cstdint>

#include "runtime/kernels/bfloats.h"
#include "runtime/kernels/vector_loops.h"

// The loops are written so that the compiler vectorises them, whatever instruction set the rest is compiled for.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math")
#define GRAPHPIPE_SAME_PLACE _Pragma("GCC ivdep")
#else
#define GRAPHPIPE_SAME_PLACE _Pragma("clang loop vectorize(assume_safety)")
#endif

namespace graphpipe::runtime {
namespace {

GRAPHPIPE_INLINE bool is_not_positive(float number) { return number <= 0; }
/// Of the bits of a bfloat16. NaN stays, with either sign.
GRAPHPIPE_INLINE bool is_not_positive(int16_t bits) {
  constexpr int16_t kWithoutSign = 0x7FFF, kInfinity = 0x7F80;
  return bits <= 0 && static_cast<int16_t>(bits & kWithoutSign) <= kInfinity;
}

/// The result may lie where x does. NaN stays.
template <typename Number>
GRAPHPIPE_INLINE void rectify(const Number* x, Number* result, int64_t count) {
  GRAPHPIPE_SAME_PLACE
  for (int64_t i = 0; i < count; ++i) result[i] = is_not_positive(x[i]) ? Number{0} : x[i];
}

/// The gradient of x may lie where that of the result does.
template <typename Number>
GRAPHPIPE_INLINE void pass_where_positive(const Number* gradient, const Number* result, Number* of_x, int64_t count) {
  GRAPHPIPE_SAME_PLACE
  for (int64_t i = 0; i < count; ++i) {
    const Number passed = gradient[i];  // read in any case, as vectors are
    of_x[i] = is_not_positive(result[i]) ? Number{0} : passed;
  }
}

#if defined(__x86_64__)
template <typename Number>
GRAPHPIPE_AVX2 void rectify_avx2(const Number* x, Number* result, int64_t count) {
  rectify(x, result, count);
}
template <typename Number>
GRAPHPIPE_AVX2 void pass_where_positive_avx2(const Number* gradient, const Number* result, Number* of_x,
                                             int64_t count) {
  pass_where_positive(gradient, result, of_x, count);
}
#endif

template <typename Number>
void rectify_some(const Number* x, Number* result, int64_t count) {
#if defined(__x86_64__)
  if (has_avx2()) return rectify_avx2(x, result, count);
#endif
  rectify(x, result, count);
}

template <typename Number>
void pass_some(const Number* gradient, const Number* result, Number* of_x, int64_t count) {
#if defined(__x86_64__)
  if (has_avx2()) return pass_where_positive_avx2(gradient, result, of_x, count);
#endif
  pass_where_positive(gradient, result, of_x, count);
}

template <typename Number>
void rectify_parts(const Number* x, Number* result, int64_t count) {
  for_parts(count, kElementsPerThread,
            [&](int64_t begin, int64_t end) { rectify_some(x + begin, result + begin, end - begin); });
}

template <typename Number>
void pass_parts(const Number* gradient, const Number* result, Number* of_x, int64_t count) {
  for_parts(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    pass_some(gradient + begin, result + begin, of_x + begin, end - begin);
  });
}

}  // namespace
}  // namespace graphpipe::runtime

#undef GRAPHPIPE_SAME_PLACE
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace graphpipe::runtime {
namespace {

bool rectifies(const at::Tensor& tensor) { return loop_takes(tensor) || are_bfloats(tensor); }
bool rectifies(const at::Tensor& gradient, const at::Tensor& result) {
  return rectifies(gradient) && rectifies(result) && gradient.scalar_type() == result.scalar_type();
}

const int16_t* signed_bits_of(const at::Tensor& tensor) { return reinterpret_cast<const int16_t*>(bits_of(tensor)); }
int16_t* mutable_signed_bits_of(const at::Tensor& tensor) {
  return reinterpret_cast<int16_t*>(mutable_bits_of(tensor));
}

at::Tensor new_one_like(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat ? new_floats(x.sizes()) : new_bfloats(x.sizes());
}

void rectify_all(const at::Tensor& x, const at::Tensor& result) {
  if (x.scalar_type() == at::kFloat)
    return rectify_parts(x.const_data_ptr<float>(), result.mutable_data_ptr<float>(), x.numel());
  rectify_parts(signed_bits_of(x), mutable_signed_bits_of(result), x.numel());
}

void pass_all(const at::Tensor& gradient, const at::Tensor& result, const at::Tensor& of_x) {
  if (result.scalar_type() == at::kFloat)
    return pass_parts(gradient.const_data_ptr<float>(), result.const_data_ptr<float>(), of_x.mutable_data_ptr<float>(),
                      result.numel());
  pass_parts(signed_bits_of(gradient), signed_bits_of(result), mutable_signed_bits_of(of_x), result.numel());
}

/// LibTorch lays its gradient out like `result`; what takes the place of the gradient is laid out like that.
at::Tensor laid_out_like(const at::Tensor& gradient, const at::Tensor& result) {
  return result.strides() == gradient.strides() ? result : at::empty_like(gradient).copy_(result);
}

}  // namespace

at::Tensor relu(const at::Tensor& x) {
  if (!rectifies(x)) return at::relu(x);
  at::Tensor result = new_one_like(x);
  rectify_all(x, result);
  return result;
}

at::Tensor relu_gradient(const at::Tensor& gradient, const at::Tensor& result) {
  if (!rectifies(gradient, result)) return at::threshold_backward(gradient, laid_out_like(gradient, result), 0);
  at::Tensor of_x = new_one_like(result);
  pass_all(gradient, result, of_x);
  return of_x;
}

at::Tensor relu_(const at::Tensor& x) {
  if (rectifies(x)) {
    rectify_all(x, x);
    return x;
  }
  at::Tensor place = x;
  return at::relu_(place);
}

at::Tensor relu_gradient_(const at::Tensor& gradient, const at::Tensor& result) {
  if (rectifies(gradient, result)) {
    pass_all(gradient, result, gradient);
    return gradient;
  }
  at::Tensor place = gradient;
  return at::threshold_backward_out(place, gradient, result, 0);
}

}  // namespace graphpipe::runtime
