#include "runtime/kernels/depthwise_last.h"

#include <algorithm>

#include "runtime/kernels/vectors.h"
#include "runtime/kernels/windows.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "no-tree-loop-distribute-patterns")
#endif

namespace graphpipe::runtime {
namespace {

constexpr int64_t kLastLanes = kFewestChannelsLast;
/// Elements of a line of the kernel whose sums stay in registers together.
constexpr int kTapsTogether = 7;

/// As many channels as two vectors of eight hold, or one of sixteen.
template <typename Vector>
struct ChannelLanes {
  static constexpr int kParts = kLastLanes * sizeof(float) / sizeof(Vector);
  static constexpr int64_t kLanes = sizeof(Vector) / sizeof(float);
  Vector of[kParts] = {};
};

template <typename Vector>
GRAPHPIPE_INLINE void load_lanes(const float* from, ChannelLanes<Vector>& lanes) {
  typedef Vector Unaligned __attribute__((aligned(4)));
  for (int part = 0; part < ChannelLanes<Vector>::kParts; ++part)
    lanes.of[part] = *reinterpret_cast<const Unaligned*>(from + part * ChannelLanes<Vector>::kLanes);
}
/// Bits of bfloat16, as many as a vector has floats, and space to widen them.
using Bits8 = uint16_t __attribute__((vector_size(16)));
using Bits16 = uint16_t __attribute__((vector_size(32)));
using UnalignedBits8 = uint16_t __attribute__((vector_size(16), aligned(2)));
using UnalignedBits16 = uint16_t __attribute__((vector_size(32), aligned(2)));
using Words8 = uint32_t __attribute__((vector_size(32)));
using Words16 = uint32_t __attribute__((vector_size(64)));

GRAPHPIPE_INLINE void load_widened(const uint16_t* from, Vector8& to) {
  const Bits8 bits = *reinterpret_cast<const UnalignedBits8*>(from);
  to = reinterpret_cast<Vector8>(__builtin_convertvector(bits, Words8) << 16);
}
GRAPHPIPE_INLINE void load_widened(const uint16_t* from, Vector16& to) {
  const Bits16 bits = *reinterpret_cast<const UnalignedBits16*>(from);
  to = reinterpret_cast<Vector16>(__builtin_convertvector(bits, Words16) << 16);
}
template <typename Vector>
GRAPHPIPE_INLINE void load_lanes(const uint16_t* from, ChannelLanes<Vector>& lanes) {
  for (int part = 0; part < ChannelLanes<Vector>::kParts; ++part)
    load_widened(from + part * ChannelLanes<Vector>::kLanes, lanes.of[part]);
}

/// A line of gradients beside a line of a plane, both of the same channels.
template <typename Element>
struct LinePair {
  const Element *places, *plane;
  /// Between places, and between elements that follow places by the stride.
  int64_t channels, stride;
};

/// Adds the places of [range) times what kTaps elements of the kernel read there, which lie `step` floats apart.
template <typename Vector, int kTaps, typename Element>
GRAPHPIPE_INLINE void add_places(const LinePair<Element>& line, PlaceRange range, int64_t first_tap, int64_t step,
                                 ChannelLanes<Vector>* sums) {
  for (int64_t place = range.begin; place < range.end; ++place) {
    ChannelLanes<Vector> gradient, read;
    load_lanes(line.places + place * line.channels, gradient);
    const Element* const from = line.plane + place * line.stride + first_tap;
#pragma GCC unroll 7
    for (int tap = 0; tap < kTaps; ++tap) {
      load_lanes(from + tap * step, read);
      for (int part = 0; part < ChannelLanes<Vector>::kParts; ++part)
        sums[tap].of[part] += gradient.of[part] * read.of[part];
    }
  }
}

template <typename Element>
struct LastWeights {
  const WindowShape& shape;
  const Element *planes, *gradients;
  Element* of_weights;
  bool adds;
};

/// The sums of elements [first, first + kTaps) of line `down` of the kernel, of the lanes from `channel` on.
template <typename Vector, int kTaps, typename Element>
GRAPHPIPE_INLINE void sum_taps(const LastWeights<Element>& of, int64_t channel, int64_t down, int64_t first,
                               ChannelLanes<Vector>* sums) {
  const WindowShape& shape = of.shape;
  const int64_t channels = shape.channels, step = shape.step_right * channels;
  PlaceRange inside[kTaps], all{0, shape.places_right};
  for (int tap = 0; tap < kTaps; ++tap) {
    inside[tap] = places_inside((first + tap) * shape.step_right - shape.pad_left, shape.stride_right, shape.width,
                                shape.places_right);
    all = {std::max(all.begin, inside[tap].begin), std::min(all.end, inside[tap].end)};
  }
  if (all.end < all.begin) all = {0, 0};
  const PlaceRange lines =
      places_inside(down * shape.step_down - shape.pad_top, shape.stride_down, shape.height, shape.places_down);
  const int64_t left = (first * shape.step_right - shape.pad_left) * channels;
  for (int64_t sample = 0; sample < shape.samples; ++sample)
    for (int64_t place = lines.begin; place < lines.end; ++place) {
      const int64_t y = place * shape.stride_down + down * shape.step_down - shape.pad_top;
      const LinePair<Element> line{
          of.gradients + (sample * shape.places_down + place) * shape.places_right * channels + channel,
          of.planes + (sample * shape.height + y) * shape.width * channels + channel, channels,
          shape.stride_right * channels};
      for (int tap = 0; tap < kTaps; ++tap)
        add_places<Vector, 1>(line,
                              {inside[tap].begin, std::min(inside[tap].end, std::max(inside[tap].begin, all.begin))},
                              left + tap * step, step, sums + tap);
      add_places<Vector, kTaps>(line, all, left, step, sums);
      for (int tap = 0; tap < kTaps; ++tap)
        add_places<Vector, 1>(line, {std::max(inside[tap].begin, std::max(all.begin, all.end)), inside[tap].end},
                              left + tap * step, step, sums + tap);
    }
}

/// Of `taps` elements, at most kTaps.
template <typename Vector, int kTaps, typename Element>
GRAPHPIPE_INLINE void sum_some_taps(const LastWeights<Element>& of, int64_t taps, int64_t channel, int64_t down,
                                    int64_t first, ChannelLanes<Vector>* sums) {
  if (taps >= kTaps) sum_taps<Vector, kTaps>(of, channel, down, first, sums);
  else if constexpr (kTaps > 1) sum_some_taps<Vector, kTaps - 1>(of, taps, channel, down, first, sums);
}

/// Writes lanes [first_lane, ..), each to the weights of its channel.
template <typename Vector, typename Element>
GRAPHPIPE_INLINE void write_lanes(const ChannelLanes<Vector>& sums, int64_t first_lane, int64_t kernel, Element* to,
                                  bool adds) {
  for (int64_t lane = first_lane; lane < kLastLanes; ++lane) {
    const float sum = sums.of[lane / ChannelLanes<Vector>::kLanes][lane % ChannelLanes<Vector>::kLanes];
    Element& weight = to[lane * kernel];
    narrow_to(adds ? widened(weight) + sum : sum, weight);
  }
}

/// Blocks [begin, end) of channels. The last one may begin inside of the one before.
template <typename Vector, typename Element>
GRAPHPIPE_INLINE void sum_blocks(const LastWeights<Element>& of, int64_t begin, int64_t end) {
  const WindowShape& shape = of.shape;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t channel = std::min(block * kLastLanes, shape.channels - kLastLanes);
    for (int64_t down = 0; down < shape.kernel_height; ++down)
      for (int64_t first = 0; first < shape.kernel_width; first += kTapsTogether) {
        const int64_t taps = std::min<int64_t>(kTapsTogether, shape.kernel_width - first);
        ChannelLanes<Vector> sums[kTapsTogether];
        sum_some_taps<Vector, kTapsTogether>(of, taps, channel, down, first, sums);
        for (int64_t tap = 0; tap < taps; ++tap)
          write_lanes(sums[tap], block * kLastLanes - channel, shape.kernel(),
                      of.of_weights + channel * shape.kernel() + down * shape.kernel_width + first + tap, of.adds);
      }
  }
}

#if defined(__x86_64__)
template <typename Element>
GRAPHPIPE_AVX512 void sum_blocks_avx512(const LastWeights<Element>& of, int64_t begin, int64_t end) {
  sum_blocks<Vector16>(of, begin, end);
}
template <typename Element>
GRAPHPIPE_AVX2 void sum_blocks_avx2(const LastWeights<Element>& of, int64_t begin, int64_t end) {
  sum_blocks<Vector8>(of, begin, end);
}
#endif

template <typename Element>
void sum_all_blocks(const LastWeights<Element>& of) {
  const int64_t elements = of.shape.windows() * of.shape.kernel() * kLastLanes;
  for_parts(ceil_div(of.shape.channels, kLastLanes), std::max<int64_t>(1, kElementsPerThread / elements),
            [&](int64_t begin, int64_t end) {
#if defined(__x86_64__)
              if (has_avx512()) return sum_blocks_avx512(of, begin, end);
              if (has_avx2()) return sum_blocks_avx2(of, begin, end);
#endif
              sum_blocks<Vector8>(of, begin, end);
            });
}

}  // namespace

template <typename Element>
void depthwise_weights_of_last(const WindowShape& shape, const Element* planes, const Element* gradients,
                               Element* of_weights, bool adds) {
  sum_all_blocks(LastWeights<Element>{shape, planes, gradients, of_weights, adds});
}

template void depthwise_weights_of_last(const WindowShape&, const float*, const float*, float*, bool);
template void depthwise_weights_of_last(const WindowShape&, const uint16_t*, const uint16_t*, uint16_t*, bool);

}  // namespace graphpipe::runtime

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
