#include "runtime/kernels/cross_entropy.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <c10/util/SmallVector.h>

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

/// An axis of the positions: the labels' axes.
struct PositionAxis {
  int64_t size, stride;
};

/// Logits that are dense in any order of their axes, with a label for each position.
struct Positions {
  const float* logits = nullptr;
  const int64_t* labels = nullptr;
  int64_t classes = 0, class_stride = 1;
  c10::SmallVector<PositionAxis, 4> axes;
  /// Positions that follow each other lie side by side, in runs of so many.
  int64_t run = 1;
  bool ignores = false;
  int64_t ignored = 0;
  float* sums = nullptr;  // two for each position; read for the gradient
  bool counts(int64_t label) const { return !ignores || label != ignored; }
};

/// Neighbouring positions that are computed together.
constexpr int64_t kNeighbours = 64;
/// Sums of parts lose less to rounding than one of a whole vocabulary.
constexpr int64_t kSummedAtOnce = 2048;
/// exp_of gives no smaller exponential.
constexpr float kSmallestPower = -87.0F;

/// Where a position's class 0 is.
GRAPHPIPE_INLINE int64_t first_class(const Positions& of, int64_t position) {
  int64_t offset = 0;
  for (size_t i = of.axes.size(); i-- > 0;) {
    offset += position % of.axes[i].size * of.axes[i].stride;
    position /= of.axes[i].size;
  }
  return offset;
}

/// How many positions from this one on are computed together, up to `end`.
GRAPHPIPE_INLINE int64_t lanes_at(const Positions& of, int64_t position, int64_t end) {
  return of.class_stride == 1 ? 1 : std::min({kNeighbours, end - position, of.run - position % of.run});
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
  const float top = largest.largest();
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
GRAPHPIPE_INLINE void sums_of_lanes(const Positions& of, const float* logits, int64_t lanes, Sum* results) {
  float largest[kNeighbours], sums[kNeighbours] = {};
  std::fill(largest, largest + kNeighbours, -std::numeric_limits<float>::infinity());
  const auto each = [&](const auto& take) __attribute__((always_inline)) {
    for (int64_t c = 0; c < of.classes; ++c) {
      const float* row = logits + c * of.class_stride;
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

/// Writes the sums and the losses of positions [begin, end).
GRAPHPIPE_INLINE void losses_of(const Positions& of, int64_t begin, int64_t end, float* losses) {
  for (int64_t position = begin; position < end;) {
    const int64_t start = first_class(of, position), lanes = lanes_at(of, position, end);
    Sum sums[kNeighbours];
    if (of.class_stride == 1) sums[0] = sum_of_row(of.logits + start, of.classes);
    else sums_of_lanes(of, of.logits + start, lanes, sums);
    for (int64_t lane = 0; lane < lanes; ++lane, ++position) {
      const float largest = sums[lane].largest, log_sum = std::log(sums[lane].of_exponentials);
      of.sums[2 * position] = largest;
      of.sums[2 * position + 1] = log_sum;
      const int64_t label = of.labels[position];
      // The difference of the large numbers first: with a likely label little is left of it.
      losses[position] =
          of.counts(label) ? largest - of.logits[start + lane + label * of.class_stride] + log_sum : 0.0F;
    }
  }
}

GRAPHPIPE_INLINE float gradient_at(float logit, float largest, float log_sum, float gradient) {
  const float power = logit - largest - log_sum;
  return power < kSmallestPower ? 0.0F : exp_of(power) * gradient;
}

/// Writes the gradients of positions [begin, end), perhaps in the place of the logits.
GRAPHPIPE_INLINE void gradients_of(const Positions& of, int64_t begin, int64_t end, float gradient, float* results) {
  for (int64_t position = begin; position < end;) {
    const int64_t start = first_class(of, position), lanes = lanes_at(of, position, end);
    float largest[kNeighbours], log_sums[kNeighbours];
    for (int64_t lane = 0; lane < lanes; ++lane) {
      largest[lane] = of.sums[2 * (position + lane)];
      log_sums[lane] = of.sums[2 * (position + lane) + 1];
    }
    const float* const logits = of.logits + start;
    float* const to = results + start;
    if (of.class_stride == 1)
      for (int64_t c = 0; c < of.classes; ++c) to[c] = gradient_at(logits[c], largest[0], log_sums[0], gradient);
    else
      for (int64_t c = 0; c < of.classes * of.class_stride; c += of.class_stride)
        for (int64_t lane = 0; lane < lanes; ++lane)
          to[c + lane] = gradient_at(logits[c + lane], largest[lane], log_sums[lane], gradient);
    for (int64_t lane = 0; lane < lanes; ++lane, ++position) {
      const int64_t label = of.labels[position];
      if (of.counts(label)) to[lane + label * of.class_stride] -= gradient;
      else
        for (int64_t c = 0; c < of.classes; ++c) to[lane + c * of.class_stride] = 0;
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

/// Elements whose exponentials LibTorch's operators keep at a time, where they take the place of the loops.
constexpr int64_t kElementsAtOnce = 1 << 22;

bool loops_take(const at::Tensor& logits, const at::Tensor& labels) {
  return is_plain(logits) && logits.is_non_overlapping_and_dense() && logits.numel() > 0 && labels.is_cpu();
}

int64_t positions_per_thread(int64_t classes) { return std::max<int64_t>(1, kElementsPerThread / classes); }

/// Contiguous, of int64.
at::Tensor indices_of(const at::Tensor& labels) { return labels.to(at::kLong).contiguous(); }

Positions positions_of(const at::Tensor& logits, const at::Tensor& labels, int64_t axis,
                       std::optional<int64_t> ignored) {
  Positions of;
  of.logits = logits.const_data_ptr<float>();
  of.labels = labels.const_data_ptr<int64_t>();
  of.classes = logits.size(axis);
  of.class_stride = of.classes == 1 ? 1 : logits.stride(axis);
  for (int64_t i = 0; i < logits.dim(); ++i)
    if (i != axis) of.axes.push_back({logits.size(i), logits.stride(i)});
  if (!of.axes.empty() && of.axes.back().stride == 1) of.run = of.axes.back().size;
  of.ignores = ignored.has_value();
  of.ignored = ignored.value_or(0);
  for (int64_t i = 0; i < labels.numel(); ++i)
    TORCH_CHECK_INDEX(!of.counts(of.labels[i]) || (of.labels[i] >= 0 && of.labels[i] < of.classes),
                      "cross entropy: label ", of.labels[i], " is none of ", of.classes, " classes");
  return of;
}

/// The largest logit of each position and the logarithm of the sum of exponentials beside it, along a last axis.
at::Tensor sums_of_some(const at::Tensor& logits, int64_t axis) {
  const at::Tensor largest = at::amax(logits, {axis}, /*keepdim=*/true);
  const at::Tensor log_sum = logits.sub(largest).exp_().sum({axis}).log_();
  return at::stack({largest.squeeze(axis), log_sum}, -1);
}

at::Tensor sums_of(const at::Tensor& logits, int64_t axis) {
  const int64_t elements = logits.numel(), rows = axis == 0 ? 0 : logits.size(0);
  if (rows == 0 || elements <= kElementsAtOnce) return sums_of_some(logits, axis);
  std::vector<at::Tensor> parts;
  const int64_t some = std::max<int64_t>(1, kElementsAtOnce / (elements / rows));
  for (int64_t first = 0; first < rows; first += some)
    parts.push_back(sums_of_some(logits.narrow(0, first, std::min(some, rows - first)), axis));
  return at::cat(parts, 0);
}

/// The labels with an axis for the classes, and class 0 in the place of what is ignored.
at::Tensor class_indices(const at::Tensor& labels, int64_t axis, std::optional<int64_t> ignored) {
  const at::Tensor index = labels.unsqueeze(axis);
  return ignored ? index.masked_fill(index.eq(*ignored), 0) : index;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> cross_entropy_sum(const at::Tensor& logits, const at::Tensor& given, int64_t axis,
                                                     std::optional<int64_t> ignored) {
  const at::Tensor labels = indices_of(given);
  if (!loops_take(logits, labels)) {
    at::Tensor sums = sums_of(logits, axis);
    const at::Tensor own = logits.gather(axis, class_indices(labels, axis, ignored)).squeeze(axis);
    at::Tensor losses = sums.select(-1, 0).sub(own).add_(sums.select(-1, 1));
    if (ignored) losses.masked_fill_(labels.eq(*ignored), 0);
    return {losses.sum(), std::move(sums)};
  }
  Positions of = positions_of(logits, labels, axis, ignored);
  std::vector<int64_t> sizes = labels.sizes().vec();
  at::Tensor losses = new_floats(sizes);
  sizes.push_back(2);
  at::Tensor sums = new_floats(sizes);
  of.sums = sums.mutable_data_ptr<float>();
  float* each = losses.mutable_data_ptr<float>();
  for_parts(labels.numel(), positions_per_thread(of.classes),
            [&](int64_t begin, int64_t end) { losses_of_some(of, begin, end, each); });
  // In order, so that it does not depend on the number of threads.
  double sum = 0;
  for (int64_t i = 0; i < labels.numel(); ++i) sum += each[i];
  at::Tensor total = new_floats({});
  *total.mutable_data_ptr<float>() = static_cast<float>(sum);
  return {std::move(total), std::move(sums)};
}

namespace {

/// Into `result`, which may be the logits.
void write_gradient(const at::Tensor& result, const at::Tensor& logits, const at::Tensor& sums, const at::Tensor& given,
                    const at::Tensor& gradient, int64_t axis, std::optional<int64_t> ignored) {
  const at::Tensor labels = indices_of(given);
  if (!loops_take(logits, labels) || !loop_takes(sums) || !loop_takes(gradient) ||
      result.strides() != logits.strides()) {
    if (!result.is_same(logits)) result.copy_(logits);
    result.sub_(sums.select(-1, 0).unsqueeze(axis)).sub_(sums.select(-1, 1).unsqueeze(axis)).exp_();
    result.scatter_(axis, class_indices(labels, axis, ignored), -1.0, "add");
    if (ignored) result.masked_fill_(labels.eq(*ignored).unsqueeze(axis), 0);
    result.mul_(gradient);
    return;
  }
  Positions of = positions_of(logits, labels, axis, ignored);
  of.sums = const_cast<float*>(sums.const_data_ptr<float>());
  float* out = result.mutable_data_ptr<float>();
  const float factor = *gradient.const_data_ptr<float>();
  for_parts(labels.numel(), positions_per_thread(of.classes),
            [&](int64_t begin, int64_t end) { gradients_of_some(of, begin, end, factor, out); });
}

}  // namespace

at::Tensor cross_entropy_gradient(const at::Tensor& logits, const at::Tensor& sums, const at::Tensor& labels,
                                  const at::Tensor& gradient, int64_t axis, std::optional<int64_t> ignored) {
  at::Tensor result = loop_takes(logits) ? new_floats(logits.sizes()) : at::empty_like(logits);
  write_gradient(result, logits, sums, labels, gradient, axis, ignored);
  return result;
}

at::Tensor cross_entropy_gradient_(const at::Tensor& logits, const at::Tensor& sums, const at::Tensor& labels,
                                   const at::Tensor& gradient, int64_t axis, std::optional<int64_t> ignored) {
  write_gradient(logits, logits, sums, labels, gradient, axis, ignored);
  return logits;
}

}  // namespace graphpipe::runtime
