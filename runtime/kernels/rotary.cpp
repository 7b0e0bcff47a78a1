#include "runtime/kernels/rotary.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "runtime/kernels/vector_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math,no-math-errno")
#endif

namespace graphpipe::runtime {
namespace {

GRAPHPIPE_INLINE void turn_row(const float* __restrict x, const float* __restrict cosine, const float* __restrict sine,
                               float* __restrict result, int64_t half) {
  for (int64_t i = 0; i < half; ++i) result[i] = x[i] * cosine[i] - x[i + half] * sine[i];
  for (int64_t i = half; i < 2 * half; ++i) result[i] = x[i] * cosine[i] + x[i - half] * sine[i];
}

GRAPHPIPE_INLINE void turn_row_back(const float* __restrict gradient, const float* __restrict cosine,
                                    const float* __restrict sine, float* __restrict result, int64_t half) {
  for (int64_t i = 0; i < half; ++i) result[i] = gradient[i] * cosine[i] + gradient[i + half] * sine[i + half];
  for (int64_t i = half; i < 2 * half; ++i) result[i] = gradient[i] * cosine[i] - gradient[i - half] * sine[i - half];
}

using TurnRow = void (*)(const float*, const float*, const float*, float*, int64_t);

#if defined(__x86_64__)
GRAPHPIPE_AVX2 void turn_row_avx2(const float* x, const float* cosine, const float* sine, float* result, int64_t half) {
  turn_row(x, cosine, sine, result, half);
}
GRAPHPIPE_AVX2 void turn_row_back_avx2(const float* gradient, const float* cosine, const float* sine, float* result,
                                       int64_t half) {
  turn_row_back(gradient, cosine, sine, result, half);
}
#endif

void turn_row_anywhere(const float* x, const float* cosine, const float* sine, float* result, int64_t half) {
  turn_row(x, cosine, sine, result, half);
}
void turn_row_back_anywhere(const float* gradient, const float* cosine, const float* sine, float* result,
                            int64_t half) {
  turn_row_back(gradient, cosine, sine, result, half);
}

TurnRow turn_of(bool back) {
#if defined(__x86_64__)
  if (has_avx2()) return back ? turn_row_back_avx2 : turn_row_avx2;
#endif
  return back ? turn_row_back_anywhere : turn_row_anywhere;
}

}  // namespace
}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace graphpipe::runtime {
namespace {

bool has_float_rows(const at::Tensor& tensor) { return is_plain(tensor) && tensor.stride(-1) == 1; }

/// Heads [B, H, T, D] that lie inside, as products leave them and attention takes them; of other ranks dense.
at::Tensor empty_like_heads(const at::Tensor& x) {
  if (x.dim() != 4) return at::empty(x.sizes(), x.options());
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

/// Heads [B, H, T, D]: whatever lies where, rows are dense.
at::Tensor turn_heads(TurnRow turn, const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  at::Tensor result = empty_like_heads(x);
  const int64_t heads = x.size(1), rows = x.size(2), half = x.size(3) / 2;
  const auto row_of = [](const at::Tensor& tensor, int64_t sample, int64_t head, int64_t row) {
    return sample * tensor.stride(0) + head * tensor.stride(1) + row * tensor.stride(2);
  };
  const float *in = x.const_data_ptr<float>(), *cosines = cosine.const_data_ptr<float>(),
              *sines = sine.const_data_ptr<float>();
  float* const out = result.mutable_data_ptr<float>();
  const int64_t at_once = std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(1, heads * 2 * half));
  at::parallel_for(0, x.size(0) * rows, at_once, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index)
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t sample = index / rows, row = index % rows;
        turn(in + row_of(x, sample, head, row), cosines + row_of(cosine, sample, head, row),
             sines + row_of(sine, sample, head, row), out + row_of(result, sample, head, row), half);
      }
  });
  return result;
}

/// Null where LibTorch's operators are to do it.
at::Tensor turned(bool back, const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  if (x.dim() != 4 || x.numel() == 0 || !has_float_rows(x) || !has_float_rows(cosine) || !has_float_rows(sine))
    return {};
  return turn_heads(turn_of(back), x, cosine.expand(x.sizes()), sine.expand(x.sizes()));
}

std::pair<at::Tensor, at::Tensor> halves(const at::Tensor& x) {
  const int64_t half = x.size(-1) / 2;
  return {x.narrow(-1, 0, half), x.narrow(-1, half, half)};
}

}  // namespace

at::Tensor rotary(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  if (at::Tensor result = turned(false, x, cosine, sine); result.defined()) return result;
  const auto [first, second] = halves(x);
  return empty_like_heads(x).copy_(x).mul_(cosine).add_(at::cat({second.neg(), first}, -1).mul_(sine));
}

at::Tensor rotary_gradient(const at::Tensor& gradient, const at::Tensor& cosine, const at::Tensor& sine) {
  if (at::Tensor result = turned(true, gradient, cosine, sine); result.defined()) return result;
  const at::Tensor of_turned = gradient.mul(sine);
  const auto [first, second] = halves(of_turned);
  return empty_like_heads(gradient).copy_(gradient).mul_(cosine).add_(at::cat({second, first.neg()}, -1));
}

}  // namespace graphpipe::runtime
