#include "runtime/kernels/cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/kernels/vector_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3,no-trapping-math,no-math-errno")
#endif

namespace graphpipe::runtime {
namespace {

/// Logits [outer, classes, inner] in this order, with a label for each of outer * inner positions.
struct Positions {
  const float* logits = nullptr;
  const int64_t* labels = nullptr;
  int64_t classes = 0, inner = 1;
  bool ignores = false;
  int64_t ignored = 0;
  float* log_sums = nullptr;  // read for the gradient
  bool counts(int64_t label) const { return !ignores || label != ignored; }
};

/// Neighbouring positions whose classes are `inner` apart, computed together.
constexpr int64_t kNeighbours = 64;

/// Sums of parts lose less to rounding than one of a whole vocabulary.
constexpr int64_t kSummedAtOnce = 2048;

/// Where a position's class 0 is.
GRAPHPIPE_INLINE int64_t first_class(const Positions& of, int64_t position) {
  return position / of.inner * of.classes * of.inner + position % of.inner;
}

/// What is subtracted before the exponential, so that it does not overflow.
struct Sum {
  float largest, of_exponentials;
};

GRAPHPIPE_INLINE Sum sum_of_row(const float* __restrict row, int64_t count) {
  RowLanes largest;
  for (float& lane : largest.of) lane = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + kRowLanes <= count; i += kRowLanes)
    for (int64_t lane = 0; lane < kRowLanes; ++lane)
      largest.of[lane] = row[i + lane] > largest.of[lane] ? row[i + lane] : largest.of[lane];
  for (int64_t lane = 0; i + lane < count; ++lane)
    largest.of[lane] = row[i + lane] > largest.of[lane] ? row[i + lane] : largest.of[lane];
  float top = largest.of[0];
  for (const float lane : largest.of) top = lane > top ? lane : top;
  float sum = 0;
  for (int64_t first = 0; first < count; first += kSummedAtOnce) {
    const int64_t end = std::min(first + kSummedAtOnce, count);
    RowLanes sums;
    for (i = first; i + kRowLanes <= end; i += kRowLanes)
      for (int64_t lane = 0; lane < kRowLanes; ++lane) sums.of[lane] += exp_of(row[i + lane] - top);
    for (int64_t lane = 0; i + lane < end; ++lane) sums.of[lane] += exp_of(row[i + lane] - top);
    sum += sums.sum();
  }
  return {top, sum};
}

/// Of up to kNeighbours positions that lie side by side.
GRAPHPIPE_INLINE void sums_of_lanes(const float* logits, int64_t classes, int64_t inner, int64_t lanes, Sum* results) {
  float largest[kNeighbours], sums[kNeighbours] = {};
  std::fill(largest, largest + kNeighbours, -std::numeric_limits<float>::infinity());
  const auto each = [&](const auto& take) __attribute__((always_inline)) {
    for (int64_t c = 0; c < classes; ++c) {
      const float* row = logits + c * inner;
      if (lanes == kNeighbours)
        for (int64_t lane = 0; lane < kNeighbours; ++lane) take(lane, row[lane]);
      else
        for (int64_t lane = 0; lane < lanes; ++lane) take(lane, row[lane]);
    }
  };
  each([&](int64_t lane, float x)
           __attribute__((always_inline)) { largest[lane] = x > largest[lane] ? x : largest[lane]; });
  each([&](int64_t lane, float x) __attribute__((always_inline)) { sums[lane] += exp_of(x - largest[lane]); });
  for (int64_t lane = 0; lane < lanes; ++lane) results[lane] = {largest[lane], sums[lane]};
}

/// Writes log_sums and the losses of positions [begin, end).
GRAPHPIPE_INLINE void losses_of(const Positions& of, int64_t begin, int64_t end, float* losses) {
  for (int64_t position = begin; position < end;) {
    const int64_t start = first_class(of, position);
    const int64_t lanes = of.inner == 1 ? 1 : std::min({kNeighbours, end - position, of.inner - position % of.inner});
    Sum sums[kNeighbours];
    if (of.inner == 1) sums[0] = sum_of_row(of.logits + start, of.classes);
    else sums_of_lanes(of.logits + start, of.classes, of.inner, lanes, sums);
    for (int64_t lane = 0; lane < lanes; ++lane, ++position) {
      const float log_sum = std::log(sums[lane].of_exponentials);
      const int64_t label = of.labels[position];
      of.log_sums[position] = sums[lane].largest + log_sum;
      // The difference of the large numbers first: with a likely label little is left of it.
      losses[position] =
          of.counts(label) ? sums[lane].largest - of.logits[start + lane + label * of.inner] + log_sum : 0.0F;
    }
  }
}

/// Writes the gradients of positions [begin, end), perhaps in the place of the logits.
GRAPHPIPE_INLINE void gradients_of(const Positions& of, int64_t begin, int64_t end, float gradient, float* results) {
  for (int64_t position = begin; position < end;) {
    const int64_t start = first_class(of, position);
    const int64_t lanes = of.inner == 1 ? 1 : std::min({kNeighbours, end - position, of.inner - position % of.inner});
    const float* const log_sums = of.log_sums + position;
    if (of.inner == 1)
      for (int64_t c = 0; c < of.classes; ++c)
        results[start + c] = exp_of(of.logits[start + c] - log_sums[0]) * gradient;
    else
      for (int64_t c = start; c < start + of.classes * of.inner; c += of.inner)
        for (int64_t lane = 0; lane < lanes; ++lane)
          results[c + lane] = exp_of(of.logits[c + lane] - log_sums[lane]) * gradient;
    for (int64_t lane = 0; lane < lanes; ++lane, ++position) {
      const int64_t label = of.labels[position];
      if (of.counts(label)) results[start + lane + label * of.inner] -= gradient;
      else
        for (int64_t c = 0; c < of.classes; ++c) results[start + lane + c * of.inner] = 0;
    }
  }
}

#if defined(__x86_64__)
GRAPHPIPE_AVX2 void losses_avx2(const Positions& of, int64_t begin, int64_t end, float* losses) {
  losses_of(of, begin, end, losses);
}
GRAPHPIPE_AVX2 void gradients_avx2(const Positions& of, int64_t begin, int64_t end, float gradient, float* results) {
  gradients_of(of, begin, end, gradient, results);
}
GRAPHPIPE_AVX512 void losses_avx512(const Positions& of, int64_t begin, int64_t end, float* losses) {
  losses_of(of, begin, end, losses);
}
GRAPHPIPE_AVX512 void gradients_avx512(const Positions& of, int64_t begin, int64_t end, float gradient,
                                       float* results) {
  gradients_of(of, begin, end, gradient, results);
}
#endif

void losses_of_some(const Positions& of, int64_t begin, int64_t end, float* losses) {
#if defined(__x86_64__)
  if (has_avx512()) return losses_avx512(of, begin, end, losses);
  if (has_avx2()) return losses_avx2(of, begin, end, losses);
#endif
  losses_of(of, begin, end, losses);
}

void gradients_of_some(const Positions& of, int64_t begin, int64_t end, float gradient, float* results) {
#if defined(__x86_64__)
  if (has_avx512()) return gradients_avx512(of, begin, end, gradient, results);
  if (has_avx2()) return gradients_avx2(of, begin, end, gradient, results);
#endif
  gradients_of(of, begin, end, gradient, results);
}

}  // namespace
}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace graphpipe::runtime {
namespace {

/// Elements whose exponentials LibTorch's operator keeps at a time, where it takes the place of the loops.
constexpr int64_t kElementsAtOnce = 1 << 24;

bool loops_take(const at::Tensor& logits, const at::Tensor& labels) {
  return loop_takes(logits) && logits.numel() > 0 && labels.is_cpu() && labels.is_contiguous();
}

int64_t positions_per_thread(int64_t classes) { return std::max<int64_t>(1, kElementsPerThread / classes); }

Positions positions_of(const at::Tensor& logits, const at::Tensor& labels, int64_t axis,
                       std::optional<int64_t> ignored) {
  Positions of;
  of.logits = logits.const_data_ptr<float>();
  of.labels = labels.const_data_ptr<int64_t>();
  of.classes = logits.size(axis);
  for (int64_t i = axis + 1; i < logits.dim(); ++i) of.inner *= logits.size(i);
  of.ignores = ignored.has_value();
  of.ignored = ignored.value_or(0);
  for (int64_t i = 0; i < labels.numel(); ++i)
    TORCH_CHECK_INDEX(!of.counts(of.labels[i]) || (of.labels[i] >= 0 && of.labels[i] < of.classes),
                      "cross entropy: label ", of.labels[i], " is none of ", of.classes, " classes");
  return of;
}

at::Tensor log_sums_of(const at::Tensor& logits, int64_t axis) {
  const int64_t elements = logits.numel(), rows = axis == 0 ? 0 : logits.size(0);
  if (rows == 0 || elements <= kElementsAtOnce) return at::logsumexp(logits, {axis});
  std::vector<int64_t> sizes = logits.sizes().vec();
  sizes.erase(sizes.begin() + axis);
  at::Tensor result = at::empty(sizes, logits.options());
  const int64_t some = std::max<int64_t>(1, kElementsAtOnce / (elements / rows));
  for (int64_t first = 0; first < rows; first += some) {
    const int64_t count = std::min(some, rows - first);
    result.narrow(0, first, count).copy_(at::logsumexp(logits.narrow(0, first, count), {axis}));
  }
  return result;
}

/// The labels with an axis for the classes, and class 0 in the place of what is ignored.
at::Tensor class_indices(const at::Tensor& labels, int64_t axis, std::optional<int64_t> ignored) {
  const at::Tensor index = labels.unsqueeze(axis);
  return ignored ? index.masked_fill(index.eq(*ignored), 0) : index;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> cross_entropy_sum(const at::Tensor& logits, const at::Tensor& given, int64_t axis,
                                                     std::optional<int64_t> ignored) {
  const at::Tensor labels = given.to(at::kLong);
  if (!loops_take(logits, labels)) {
    at::Tensor log_sums = log_sums_of(logits, axis);
    at::Tensor losses = log_sums.sub(logits.gather(axis, class_indices(labels, axis, ignored)).squeeze(axis));
    if (ignored) losses.masked_fill_(labels.eq(*ignored), 0);
    return {losses.sum(), std::move(log_sums)};
  }
  Positions of = positions_of(logits, labels, axis, ignored);
  at::Tensor log_sums = at::empty(labels.sizes(), logits.options()), losses = at::empty_like(log_sums);
  of.log_sums = log_sums.mutable_data_ptr<float>();
  float* each = losses.mutable_data_ptr<float>();
  at::parallel_for(0, labels.numel(), positions_per_thread(of.classes),
                   [&](int64_t begin, int64_t end) { losses_of_some(of, begin, end, each); });
  // In order, so that it does not depend on the number of threads.
  double sum = 0;
  for (int64_t i = 0; i < labels.numel(); ++i) sum += each[i];
  at::Tensor total = at::empty({}, logits.options());
  *total.mutable_data_ptr<float>() = static_cast<float>(sum);
  return {std::move(total), std::move(log_sums)};
}

namespace {

/// Into `result`, which may be the logits.
void write_gradient(const at::Tensor& result, const at::Tensor& logits, const at::Tensor& log_sums,
                    const at::Tensor& given, const at::Tensor& gradient, int64_t axis, std::optional<int64_t> ignored) {
  const at::Tensor labels = given.to(at::kLong);
  if (!loops_take(logits, labels) || !loop_takes(log_sums) || !loop_takes(gradient)) {
    if (result.is_same(logits)) result.sub_(log_sums.unsqueeze(axis)).exp_();
    else result.copy_(logits).sub_(log_sums.unsqueeze(axis)).exp_();
    result.scatter_(axis, class_indices(labels, axis, ignored), -1.0, "add");
    if (ignored) result.masked_fill_(labels.eq(*ignored).unsqueeze(axis), 0);
    result.mul_(gradient);
    return;
  }
  Positions of = positions_of(logits, labels, axis, ignored);
  of.log_sums = const_cast<float*>(log_sums.const_data_ptr<float>());
  float* out = result.mutable_data_ptr<float>();
  const float factor = *gradient.const_data_ptr<float>();
  at::parallel_for(0, labels.numel(), positions_per_thread(of.classes),
                   [&](int64_t begin, int64_t end) { gradients_of_some(of, begin, end, factor, out); });
}

}  // namespace

at::Tensor cross_entropy_gradient(const at::Tensor& logits, const at::Tensor& log_sums, const at::Tensor& labels,
                                  const at::Tensor& gradient, int64_t axis, std::optional<int64_t> ignored) {
  at::Tensor result = at::empty_like(logits);
  write_gradient(result, logits, log_sums, labels, gradient, axis, ignored);
  return result;
}

at::Tensor cross_entropy_gradient_(const at::Tensor& logits, const at::Tensor& log_sums, const at::Tensor& labels,
                                   const at::Tensor& gradient, int64_t axis, std::optional<int64_t> ignored) {
  write_gradient(logits, logits, log_sums, labels, gradient, axis, ignored);
  return logits;
}

}  // namespace graphpipe::runtime
