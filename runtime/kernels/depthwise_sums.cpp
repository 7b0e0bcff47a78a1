#include "runtime/kernels/depthwise_pass.h"
#include "runtime/kernels/vectors.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-tree-loop-distribute-patterns")
#endif

namespace graphpipe::runtime {
namespace {

/// Of so many floats in a vector.
template <typename Vector>
struct DepthwiseVector {
  typedef Vector Unaligned __attribute__((aligned(4)));
  typedef uint32_t Mask __attribute__((vector_size(sizeof(Vector))));
  typedef Mask UnalignedMask __attribute__((aligned(4)));
  static constexpr int64_t kLanes = sizeof(Vector) / sizeof(float);

  static GRAPHPIPE_INLINE Vector load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
  static GRAPHPIPE_INLINE void store(float* to, const Vector& vector) { *reinterpret_cast<Unaligned*>(to) = vector; }
  static GRAPHPIPE_INLINE Vector masked(const Vector& vector, const uint32_t* mask) {
    if (mask == nullptr) return vector;
    return reinterpret_cast<Vector>(reinterpret_cast<const Mask&>(vector) &
                                    *reinterpret_cast<const UnalignedMask*>(mask));
  }
};

/// Lines of a block that are computed together, so that what several of them read is loaded once.
constexpr int kLinesTogether = 4;

/// Calls `work` with the height of a part's columns if there is a loop for it and their elements are a line apart, else
/// with 0.
template <typename Work>
GRAPHPIPE_INLINE void with_height(const DepthwisePass& pass, const KernelPart& part, const Work& work) {
  if (pass.between_taps != pass.pitch) return work(std::integral_constant<int, 0>{});
  switch (part.height) {
    case 1:
      return work(std::integral_constant<int, 1>{});
    case 2:
      return work(std::integral_constant<int, 2>{});
    case 3:
      return work(std::integral_constant<int, 3>{});
    case 4:
      return work(std::integral_constant<int, 4>{});
    case 5:
      return work(std::integral_constant<int, 5>{});
    case 7:
      return work(std::integral_constant<int, 7>{});
    default:
      return work(std::integral_constant<int, 0>{});
  }
}

/// Adds to the sums of kLines lines what a column's elements read: kHeight of them, or if that is 0 those of the part.
template <typename Vector, int kHeight, int kLines>
GRAPHPIPE_INLINE void sum_column(const DepthwisePass& pass, const KernelTap* taps, int64_t height, const float* copies,
                                 const float* weights, Vector (&sums)[kLines]) {
  using V = DepthwiseVector<Vector>;
  if constexpr (kHeight > 0) {
    const float* const from = copies + taps[0].offset;
#pragma GCC unroll 16
    for (int line = 0; line < kHeight + kLines - 1; ++line) {
      const Vector read = V::load(from + line * pass.pitch);
#pragma GCC unroll 4
      for (int i = 0; i < kLines; ++i)
        if (line >= i && line - i < kHeight) sums[i] += weights[line - i] * read;
    }
  } else {
    for (int64_t tap = 0; tap < height; ++tap)
#pragma GCC unroll 4
      for (int i = 0; i < kLines; ++i) sums[i] += weights[tap] * V::load(copies + taps[tap].offset + i * pass.pitch);
  }
}

/// What sum_parts does, and where in a block.
struct PartSums {
  const DepthwisePass& pass;
  int64_t first, last;
  const float *copies, *weights;
  float bias;
  float* sums;
};

/// The sums of kLines lines of places, a vector of each.
template <typename Vector, int kLines>
GRAPHPIPE_INLINE void sum_lines(const PartSums& of, int64_t line, int64_t column) {
  using V = DepthwiseVector<Vector>;
  const DepthwisePass& pass = of.pass;
  const int64_t place = line * pass.pitch + column;
  Vector sum[kLines];
#pragma GCC unroll 4
  for (int i = 0; i < kLines; ++i) sum[i] = Vector{} + of.bias;
  for (const KernelPart* part = pass.parts + of.first; part != pass.parts + of.last; ++part)
    with_height(
        pass, *part, [&](auto height) __attribute__((always_inline)) {
          for (int64_t right = 0; right < part->columns; ++right) {
            const int64_t tap = part->first_tap + right * (height > 0 ? height : part->height);
            Vector of_column[kLines] = {};
            sum_column<Vector, height>(pass, pass.taps + tap, part->height, of.copies + place, of.weights + tap,
                                       of_column);
            const uint32_t* const mask = pass.masks[part->first_column + right];
#pragma GCC unroll 4
            for (int i = 0; i < kLines; ++i) sum[i] += V::masked(of_column[i], mask == nullptr ? mask : mask + column);
          }
        });
#pragma GCC unroll 4
  for (int i = 0; i < kLines; ++i) V::store(of.sums + place + i * pass.pitch, sum[i]);
}

template <typename Vector>
GRAPHPIPE_INLINE void sum_all(const PartSums& of, int64_t lines) {
  const auto sum_at = [&](auto together, int64_t line) __attribute__((always_inline)) {
    for (int64_t column = 0; column < of.pass.pitch; column += DepthwiseVector<Vector>::kLanes)
      sum_lines<Vector, together>(of, line, column);
  };
  if (lines < kLinesTogether) {
    for (int64_t line = 0; line < lines; ++line) sum_at(std::integral_constant<int, 1>{}, line);
    return;
  }
  for (int64_t line = 0; line + kLinesTogether < lines; line += kLinesTogether)
    sum_at(std::integral_constant<int, kLinesTogether>{}, line);
  // The last ones, which may be some of those before once more.
  sum_at(std::integral_constant<int, kLinesTogether>{}, lines - kLinesTogether);
}

/// Adds the products of kLines lines of places, a vector of each, to kHeight sums.
template <typename Vector, int kLines, int kHeight>
GRAPHPIPE_INLINE void add_lines(int64_t pitch, const float* read, const float* places, const uint32_t* mask,
                                Vector (&sums)[kHeight]) {
  using V = DepthwiseVector<Vector>;
  Vector place[kLines];
#pragma GCC unroll 4
  for (int i = 0; i < kLines; ++i) place[i] = V::masked(V::load(places + i * pitch), mask);
#pragma GCC unroll 16
  for (int line = 0; line < kHeight + kLines - 1; ++line) {
    const Vector of_line = V::load(read + line * pitch);
#pragma GCC unroll 4
    for (int i = 0; i < kLines; ++i)
      if (line >= i && line - i < kHeight) sums[line - i] += place[i] * of_line;
  }
}

/// All lines, for the elements of one column.
template <typename Vector, int kHeight>
GRAPHPIPE_INLINE void add_column(const DepthwisePass& pass, const float* read, const float* places, int64_t lines,
                                 const uint32_t* mask, float* sums) {
  using V = DepthwiseVector<Vector>;
  Vector sum[kHeight];
#pragma GCC unroll 8
  for (int tap = 0; tap < kHeight; ++tap) sum[tap] = V::load(sums + tap * wire::kDepthwiseLanes);
  const auto add_at = [&](auto together, int64_t line) __attribute__((always_inline)) {
    for (int64_t column = 0; column < pass.pitch; column += V::kLanes) {
      const int64_t place = line * pass.pitch + column;
      add_lines<Vector, together, kHeight>(pass.pitch, read + place, places + place, mask + column, sum);
    }
  };
  int64_t line = 0;
  for (; line + kLinesTogether <= lines; line += kLinesTogether)
    add_at(std::integral_constant<int, kLinesTogether>{}, line);
  if (lines - line >= 2) add_at(std::integral_constant<int, 2>{}, line), line += 2;
  if (line < lines) add_at(std::integral_constant<int, 1>{}, line);
#pragma GCC unroll 8
  for (int tap = 0; tap < kHeight; ++tap) V::store(sums + tap * wire::kDepthwiseLanes, sum[tap]);
}

template <typename Vector>
GRAPHPIPE_INLINE void add_all(const DepthwisePass& pass, const float* phases, const float* places, int64_t lines,
                              float* sums) {
  for (const KernelPart* part = pass.parts; part != pass.parts + pass.part_count; ++part)
    with_height(
        pass, *part, [&](auto height) __attribute__((always_inline)) {
          constexpr int kTogether = height > 0 ? height : 1;
          for (int64_t i = 0; i < part->columns * part->height; i += kTogether) {
            const int64_t tap = part->first_tap + i;
            add_column<Vector, kTogether>(pass, phases + pass.taps[tap].offset, places, lines,
                                          pass.masks[part->first_column + i / part->height],
                                          sums + tap * wire::kDepthwiseLanes);
          }
        });
}

// --- for the processor's instruction set ---

#define GRAPHPIPE_DEPTHWISE_LOOPS(name, Target, Vector)                                                               \
  Target void sum_parts_##name(const DepthwisePass& pass, int64_t first, int64_t last, const float* copies,           \
                               int64_t lines, const float* weights, float bias, float* sums) {                        \
    sum_all<Vector>({pass, first, last, copies, weights, bias, sums}, lines);                                         \
  }                                                                                                                   \
  Target void add_products_##name(const DepthwisePass& pass, const float* phases, const float* places, int64_t lines, \
                                  float* sums) {                                                                      \
    add_all<Vector>(pass, phases, places, lines, sums);                                                               \
  }
#if defined(__x86_64__)
GRAPHPIPE_DEPTHWISE_LOOPS(wide, GRAPHPIPE_AVX512, Vector16)
GRAPHPIPE_DEPTHWISE_LOOPS(narrow_wide, GRAPHPIPE_AVX512, Vector8)
GRAPHPIPE_DEPTHWISE_LOOPS(avx2, GRAPHPIPE_AVX2, Vector8)
#endif
GRAPHPIPE_DEPTHWISE_LOOPS(any, , Vector8)
#undef GRAPHPIPE_DEPTHWISE_LOOPS

}  // namespace

DepthwiseLoops depthwise_loops([[maybe_unused]] int64_t pitch) {
#if defined(__x86_64__)
  // Lines that fill half of a vector at most.
  if (has_avx512() && pitch <= kVector8Lanes) return {sum_parts_narrow_wide, add_products_narrow_wide};
  if (has_avx512()) return {sum_parts_wide, add_products_wide};
  if (has_avx2()) return {sum_parts_avx2, add_products_avx2};
#endif
  return {sum_parts_any, add_products_any};
}

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
