#include "runtime/kernels/depthwise_planes.h"

#include <algorithm>
#include <type_traits>

#include "runtime/kernels/depthwise_pass.h"
#include "runtime/kernels/vector_loops.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-tree-loop-distribute-patterns")
#endif

namespace graphpipe::runtime {
namespace {

using wire::kDepthwiseLanes;
using wire::kMaxDepthwiseKernel;

/// Calls work(first line, lines) for each block.
template <typename Work>
GRAPHPIPE_INLINE void for_each_block(const DepthwisePass& pass, const Work& work) {
  for (int64_t first = 0; first < pass.lines; first += pass.lines_of_block)
    work(first, std::min(pass.lines_of_block, pass.lines - first));
}

/// Elements that lie `stride` apart, or back to them.
template <typename Element, typename Stride>
GRAPHPIPE_INLINE void read_line(const Element* __restrict from, Stride stride, int64_t count, float* __restrict to) {
  for (int64_t i = 0; i < count; ++i) to[i] = widened(from[i * stride]);
}
template <typename Element, typename Stride>
GRAPHPIPE_INLINE void write_line(const float* __restrict from, Stride stride, int64_t count, Element* __restrict to) {
  for (int64_t i = 0; i < count; ++i) narrow_to(from[i], to[i * stride]);
}
constexpr std::integral_constant<int64_t, 1> kDense{};

/// Lines that lie `pitch` floats apart, one after the other.
template <typename Element>
GRAPHPIPE_INLINE void write_lines(const float* from, int64_t pitch, int64_t lines, int64_t width, Element* to) {
  if (pitch == width) return write_line(from, kDense, lines * width, to);
  for (int64_t line = 0; line < lines; ++line) write_line(from + line * pitch, kDense, width, to + line * width);
}

/// Calls `work` with the stride, as a constant where that is worth a loop of its own.
template <typename Work>
GRAPHPIPE_INLINE void with_stride_of(int64_t stride, const Work& work) {
  if (stride == 1) work(kDense);
  else if (stride == 2) work(std::integral_constant<int64_t, 2>{});
  else work(stride);
}

/// Lines [first, last) of one that has `size` lines; those outside of it are zeros. A single block never writes these.
struct LineRange {
  int64_t first, last, size;
};
/// Calls line(number of a line inside, where its copy goes).
template <typename Line>
GRAPHPIPE_INLINE void copy_lines(const DepthwisePass& pass, const LineRange& lines, float* to, const Line& line) {
  for (int64_t i = lines.first; i < lines.last; ++i, to += pass.pitch) {
    if (i >= 0 && i < lines.size) line(i, to);
    else if (!pass.is_one_block()) std::fill_n(to, pass.pitch, 0.0F);
  }
}

/// All lines at once, where they follow one another in a plane as in its copy.
template <typename Element>
GRAPHPIPE_INLINE void copy_dense(const DepthwisePass& pass, const LineRange& lines, const Element* plane, float* to) {
  const int64_t begin = std::max<int64_t>(lines.first, 0), end = std::min(lines.last, lines.size);
  if (begin < end)
    read_line(plane + begin * pass.pitch, kDense, (end - begin) * pass.pitch, to + (begin - lines.first) * pass.pitch);
  if (pass.is_one_block()) return;
  if (lines.first < 0) std::fill_n(to, std::min(-lines.first, lines.last - lines.first) * pass.pitch, 0.0F);
  const int64_t behind = std::max(lines.first, lines.size);
  if (behind < lines.last)
    std::fill_n(to + (behind - lines.first) * pass.pitch, (lines.last - behind) * pass.pitch, 0.0F);
}

/// The lines of all phases that a block of places reads.
template <typename Element>
GRAPHPIPE_INLINE void read_phases(const DepthwisePass& pass, const Element* plane, int64_t first, int64_t lines,
                                  float* copies) {
  const WindowShape& shape = pass.shape;
  const int64_t around = pass.layout.lines_around();
  float* const start = copies + pass.layout.columns_around();
  if (pass.layout.phases() == 1 && pass.pitch == shape.width)
    return copy_dense(pass, {first - around, first + lines + around, shape.height}, plane, start);
  with_stride_of(
      shape.stride_right, [&](auto stride) __attribute__((always_inline)) {
        for (int64_t down = 0; down < shape.stride_down; ++down) {
          const LineRange range{first - around, first + lines + around,
                                ceil_div(shape.height - down, shape.stride_down)};
          for (int64_t right = 0; right < stride; ++right) {
            const int64_t count = ceil_div(shape.width - right, shape.stride_right);
            copy_lines(
                pass, range, start + (down * stride + right) * pass.copy_floats,
                [&](int64_t line, float* to) __attribute__((always_inline)) {
                  read_line(plane + (line * shape.stride_down + down) * shape.width + right, stride, count, to);
                });
          }
        }
      });
}

/// Lines [first, last) of a result's plane.
template <typename Element>
GRAPHPIPE_INLINE void read_places(const DepthwisePass& pass, const Element* plane, int64_t first, int64_t last,
                                  float* to) {
  const WindowShape& shape = pass.shape;
  const LineRange range{first, last, shape.places_down};
  if (pass.pitch == shape.places_right) return copy_dense(pass, range, plane, to);
  copy_lines(
      pass, range, to, [&](int64_t line, float* at) __attribute__((always_inline)) {
        read_line(plane + line * shape.places_right, kDense, shape.places_right, at);
      });
}

/// Weights of a channel, in the order of the taps.
template <typename Element>
GRAPHPIPE_INLINE void read_weights(const DepthwisePass& pass, const Element* of_channel, float* weights) {
  for (int64_t tap = 0; tap < pass.tap_count; ++tap) weights[tap] = widened(of_channel[pass.taps[tap].weight]);
}

// --- forward ---

template <typename Element>
struct DepthwiseForward {
  DepthwisePass pass;
  const Element *planes, *weights, *bias;
  Element* results;
};

template <typename Element>
GRAPHPIPE_INLINE void run_some(const DepthwiseForward<Element>& of, int64_t begin, int64_t end) {
  const DepthwisePass& pass = of.pass;
  const DepthwiseLoops loops = depthwise_loops(pass.pitch);
  const WindowShape& shape = pass.shape;
  float* const phases = depthwise_memory().copies;
  float* const sums = phases + pass.phases_floats();
  std::fill_n(phases, pass.phases_floats(), 0.0F);
  float weights[kMaxDepthwiseKernel];
  for (int64_t plane = begin; plane < end; ++plane) {
    const int64_t channel = plane % shape.channels;
    read_weights(pass, of.weights + channel * shape.kernel(), weights);
    const float bias = of.bias == nullptr ? 0.0F : widened(of.bias[channel]);
    Element* const result = of.results + plane * shape.places();
    for_each_block(
        pass, [&](int64_t first, int64_t lines) __attribute__((always_inline)) {
          read_phases(pass, of.planes + plane * shape.height * shape.width, first, lines, phases);
          loops.sum_parts(pass, 0, pass.part_count, phases, lines, weights, bias, sums);
          write_lines(sums, pass.pitch, lines, shape.places_right, result + first * shape.places_right);
        });
  }
}

// --- input gradient ---

template <typename Element>
struct DepthwiseInputGradient {
  DepthwisePass pass;
  const Element *gradients, *weights;
  Element* of_planes;
};

/// Lines of one remainder by the stride, of a block of phases; the sums of their columns' remainders lie
/// `pass.copy_floats` apart.
template <typename Element>
GRAPHPIPE_INLINE void write_phases(const DepthwisePass& pass, int64_t down, int64_t first, int64_t lines,
                                   const float* sums, Element* plane) {
  const WindowShape& shape = pass.shape;
  const int64_t inside = std::min(first + lines, ceil_div(shape.height - down, shape.stride_down)) - first;
  if (pass.layout.phases() == 1) return write_lines(sums, pass.pitch, inside, shape.width, plane + first * shape.width);
  with_stride_of(
      shape.stride_right, [&](auto stride) __attribute__((always_inline)) {
        for (int64_t line = 0; line < inside; ++line)
          for (int64_t right = 0; right < stride; ++right)
            write_line(sums + right * pass.copy_floats + line * pass.pitch, stride,
                       ceil_div(shape.width - right, shape.stride_right),
                       plane + ((first + line) * shape.stride_down + down) * shape.width + right);
      });
}

template <typename Element>
GRAPHPIPE_INLINE void run_some(const DepthwiseInputGradient<Element>& of, int64_t begin, int64_t end) {
  const DepthwisePass& pass = of.pass;
  const DepthwiseLoops loops = depthwise_loops(pass.pitch);
  const WindowShape& shape = pass.shape;
  const int64_t around = pass.layout.lines_around();
  float* const places = depthwise_memory().copies;
  float* const sums = places + pass.copy_floats;
  std::fill_n(places, pass.copy_floats, 0.0F);
  float weights[kMaxDepthwiseKernel];
  for (int64_t plane = begin; plane < end; ++plane) {
    read_weights(pass, of.weights + plane % shape.channels * shape.kernel(), weights);
    for_each_block(
        pass, [&](int64_t first, int64_t lines) __attribute__((always_inline)) {
          read_places(pass, of.gradients + plane * shape.places(), first - around, first + lines + around,
                      places + pass.layout.columns_around());
          int64_t part = 0;
          for (int64_t down = 0; down < shape.stride_down; ++down) {
            for (int64_t right = 0; right < shape.stride_right; ++right, ++part)
              loops.sum_parts(pass, part, part + 1, places, lines, weights, 0.0F, sums + right * pass.copy_floats);
            write_phases(pass, down, first, lines, sums, of.of_planes + plane * shape.height * shape.width);
          }
        });
  }
}

// --- weight gradient ---

template <typename Element>
struct DepthwiseWeightGradient {
  DepthwisePass pass;
  const Element *planes, *gradients;
  Element* of_weights;
  bool adds;
};

template <typename Element>
GRAPHPIPE_INLINE void write_sums(const DepthwisePass& pass, const float* sums, Element* to, bool adds) {
  for (int64_t tap = 0; tap < pass.tap_count; ++tap) {
    RowLanes lanes;
    std::copy_n(sums + tap * kDepthwiseLanes, kDepthwiseLanes, lanes.of);
    Element& weight = to[pass.taps[tap].weight];
    narrow_to(adds ? widened(weight) + lanes.sum() : lanes.sum(), weight);
  }
}

template <typename Element>
GRAPHPIPE_INLINE void run_some(const DepthwiseWeightGradient<Element>& of, int64_t begin, int64_t end) {
  const DepthwisePass& pass = of.pass;
  const DepthwiseLoops loops = depthwise_loops(pass.pitch);
  const WindowShape& shape = pass.shape;
  DepthwiseMemory& memory = depthwise_memory();
  float* const phases = memory.copies;
  float* const places = phases + pass.phases_floats();
  std::fill_n(phases, pass.phases_floats() + pass.copy_floats, 0.0F);
  for (int64_t channel = begin; channel < end; ++channel) {
    std::fill_n(memory.sums, shape.kernel() * kDepthwiseLanes, 0.0F);
    for (int64_t sample = 0; sample < shape.samples; ++sample) {
      const int64_t plane = sample * shape.channels + channel;
      for_each_block(
          pass, [&](int64_t first, int64_t lines) __attribute__((always_inline)) {
            read_phases(pass, of.planes + plane * shape.height * shape.width, first, lines, phases);
            read_places(pass, of.gradients + plane * shape.places(), first, first + lines, places);
            loops.add_products(pass, phases, places, lines, memory.sums);
          });
    }
    write_sums(pass, memory.sums, of.of_weights + channel * shape.kernel(), of.adds);
  }
}

// --- for the processor's instruction set ---

#if defined(__x86_64__)
template <typename Work>
GRAPHPIPE_AVX512 void run_avx512(const Work& work, int64_t begin, int64_t end) {
  run_some(work, begin, end);
}
template <typename Work>
GRAPHPIPE_AVX2 void run_avx2(const Work& work, int64_t begin, int64_t end) {
  run_some(work, begin, end);
}
#endif

/// Parts of `count` planes or channels, each of so many elements.
template <typename Work>
void run_parts(const Work& work, int64_t count, int64_t elements) {
  const int64_t grain = std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(1, elements));
  for_parts(count, grain, [&](int64_t begin, int64_t end) {
#if defined(__x86_64__)
    if (has_avx512()) return run_avx512(work, begin, end);
    if (has_avx2()) return run_avx2(work, begin, end);
#endif
    run_some(work, begin, end);
  });
}

}  // namespace

template <typename Element>
void depthwise_planes(const WindowShape& shape, const Element* planes, const Element* weights, const Element* bias,
                      Element* results) {
  const DepthwiseForward<Element> of{pass_over_places(shape, DepthwiseMasks::kOfAllLines), planes, weights, bias,
                                     results};
  run_parts(of, shape.samples * shape.channels, shape.height * shape.width);
}

template <typename Element>
void depthwise_input_gradient(const WindowShape& shape, const Element* gradients, const Element* weights,
                              Element* of_planes) {
  const DepthwiseInputGradient<Element> of{pass_over_phases(shape), gradients, weights, of_planes};
  run_parts(of, shape.samples * shape.channels, shape.height * shape.width);
}

template <typename Element>
void depthwise_weights(const WindowShape& shape, const Element* planes, const Element* gradients, Element* of_weights,
                       bool adds) {
  const DepthwiseWeightGradient<Element> of{pass_over_places(shape, DepthwiseMasks::kOfOneLine), planes, gradients,
                                            of_weights, adds};
  run_parts(of, shape.channels, shape.samples * shape.height * shape.width);
}

#define GRAPHPIPE_DEPTHWISE(Element)                                                                            \
  template void depthwise_planes(const WindowShape&, const Element*, const Element*, const Element*, Element*); \
  template void depthwise_input_gradient(const WindowShape&, const Element*, const Element*, Element*);         \
  template void depthwise_weights(const WindowShape&, const Element*, const Element*, Element*, bool);
GRAPHPIPE_DEPTHWISE(float)
GRAPHPIPE_DEPTHWISE(uint16_t)
#undef GRAPHPIPE_DEPTHWISE

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
