#include "runtime/kernels/sum_rows.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/sum.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/kernels/bfloats.h"
#include "runtime/kernels/vector_loops.h"
#include "runtime/kernels/vectors.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif

namespace graphpipe::runtime {
namespace {

/// Columns whose sums stay in registers.
constexpr int64_t kColumnsAtOnce = 64;
/// Sums of parts, added in float64, lose less to rounding than one of all rows.
constexpr int64_t kRowsOfPart = 32;

struct SummedRows {
  const float* data;
  int64_t rows, width;
};

template <typename Vector>
GRAPHPIPE_INLINE void sum_columns(const SummedRows& of, int64_t first, float* sums) {
  constexpr int kVectors = kColumnsAtOnce * sizeof(float) / sizeof(Vector);
  constexpr int kVectorLanes = kColumnsAtOnce / kVectors;
  typedef Vector Unaligned __attribute__((aligned(4)));
  double total[kColumnsAtOnce] = {};
  for (int64_t begin = 0; begin < of.rows; begin += kRowsOfPart) {
    Vector part[kVectors] = {};
    const int64_t end = std::min(begin + kRowsOfPart, of.rows);
    for (int64_t row = begin; row < end; ++row) {
      const float* from = of.data + row * of.width + first;
      for (int i = 0; i < kVectors; ++i) part[i] += *reinterpret_cast<const Unaligned*>(from + i * kVectorLanes);
    }
    float of_part[kColumnsAtOnce];
    for (int i = 0; i < kVectors; ++i) *reinterpret_cast<Unaligned*>(of_part + i * kVectorLanes) = part[i];
    for (int64_t i = 0; i < kColumnsAtOnce; ++i) total[i] += of_part[i];
  }
  for (int64_t i = 0; i < kColumnsAtOnce; ++i) sums[first + i] = static_cast<float>(total[i]);
}

/// Fewer than kColumnsAtOnce.
GRAPHPIPE_INLINE void sum_last_columns(const SummedRows& of, int64_t first, float* sums) {
  const int64_t count = of.width - first;
  double total[kColumnsAtOnce] = {};
  for (int64_t begin = 0; begin < of.rows; begin += kRowsOfPart) {
    float part[kColumnsAtOnce] = {};
    const int64_t end = std::min(begin + kRowsOfPart, of.rows);
    for (int64_t row = begin; row < end; ++row)
      for (int64_t i = 0; i < count; ++i) part[i] += of.data[row * of.width + first + i];
    for (int64_t i = 0; i < count; ++i) total[i] += part[i];
  }
  for (int64_t i = 0; i < count; ++i) sums[first + i] = static_cast<float>(total[i]);
}

template <typename Vector>
GRAPHPIPE_INLINE void sum_blocks(const SummedRows& of, int64_t begin, int64_t end, float* sums) {
  for (int64_t first = begin * kColumnsAtOnce; first < std::min(end * kColumnsAtOnce, of.width);
       first += kColumnsAtOnce)
    if (first + kColumnsAtOnce <= of.width) sum_columns<Vector>(of, first, sums);
    else sum_last_columns(of, first, sums);
}

#if defined(__x86_64__)
GRAPHPIPE_AVX512 void sum_blocks_avx512(const SummedRows& of, int64_t begin, int64_t end, float* sums) {
  sum_blocks<Vector16>(of, begin, end, sums);
}
GRAPHPIPE_AVX2 void sum_blocks_avx2(const SummedRows& of, int64_t begin, int64_t end, float* sums) {
  sum_blocks<Vector8>(of, begin, end, sums);
}
#endif

/// Blocks [begin, end) of kColumnsAtOnce columns.
void sum_some(const SummedRows& of, int64_t begin, int64_t end, float* sums) {
#if defined(__x86_64__)
  if (has_avx512()) return sum_blocks_avx512(of, begin, end, sums);
  if (has_avx2()) return sum_blocks_avx2(of, begin, end, sums);
#endif
  sum_blocks<Vector8>(of, begin, end, sums);
}

}  // namespace
}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace graphpipe::runtime {

namespace {

/// Of long and narrow matrices LibTorch sums several rows with one vector, on all threads.
bool is_long_and_narrow(int64_t rows, int64_t width) { return width < 16 && rows > 64; }

void sum_all(const SummedRows& of, float* sums) {
  const int64_t blocks = (of.width + kColumnsAtOnce - 1) / kColumnsAtOnce,
                grain = std::max<int64_t>(1, kElementsPerThread / (of.rows * kColumnsAtOnce));
  for_parts(blocks, grain, [&](int64_t begin, int64_t end) { sum_some(of, begin, end, sums); });
}

/// Numbers that are widened to memory of their own, at most.
constexpr int64_t kMaxWidened = 1 << 13;

struct WidenedSummands {
  alignas(64) float rows[kMaxWidened], sums[kMaxWidened];
};
thread_local WidenedSummands widened_summands;

/// Needs: at most kMaxWidened elements.
at::Tensor sum_bfloats(const at::Tensor& x, at::IntArrayRef sizes, int64_t width) {
  WidenedSummands& widened = widened_summands;
  widen(bits_of(x), x.numel(), widened.rows);
  sum_all({widened.rows, x.numel() / width, width}, widened.sums);
  return narrowed(widened.sums, sizes);
}

}  // namespace

at::Tensor sum_leading_axes(const at::Tensor& x, int64_t axes) {
  const at::IntArrayRef kept = x.sizes().slice(static_cast<size_t>(axes));
  const int64_t width = c10::multiply_integers(kept);
  const bool is_few = are_bfloats(x) && x.numel() <= kMaxWidened;
  if ((!loop_takes(x) && !is_few) || x.numel() == 0 || is_long_and_narrow(x.numel() / width, width)) {
    std::vector<int64_t> all(static_cast<size_t>(axes));
    std::iota(all.begin(), all.end(), 0);
    return at::sum(x, all, /*keepdim=*/false);
  }
  if (is_few) return sum_bfloats(x, kept, width);
  at::Tensor result = new_floats(kept);
  sum_all({x.const_data_ptr<float>(), x.numel() / width, width}, result.mutable_data_ptr<float>());
  return result;
}

}  // namespace graphpipe::runtime
