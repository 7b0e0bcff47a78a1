#pragma once
// Depthwise convolutions, whose channels have a kernel each: how the runtime's loops lay out a plane, and which shapes
// they take. A function of the shape alone, so that the compiler knows too.
//
// With strides, the lines and columns of a plane are divided by their remainders into phases. In a phase an element of
// the kernel reads at a constant distance from the place that it contributes to, so that to the loops the places of a
// block of lines are one line; what this makes an element read across a line's ends is masked.

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "support/integer_math.h"
#include "wire/convolution.h"
#include "wire/window_shape.h"

namespace graphpipe::wire {

/// Places of a block, about, unless one line has more.
inline constexpr int64_t kDepthwisePlaces = 1024;
/// Floats that a thread keeps for copies, and for masks.
inline constexpr int64_t kMaxDepthwiseFloats = 1 << 15;
/// Elements of a kernel that the loops take.
inline constexpr int64_t kMaxDepthwiseKernel = 256;
/// And products of the strides.
inline constexpr int64_t kMaxDepthwisePhases = 64;
/// Sums of an element's gradient at most, in the lanes of a vector; what loops read and write past the end of a copy.
inline constexpr int64_t kDepthwiseLanes = 16, kDepthwiseSlack = kDepthwiseLanes;

/// Where an element of the kernel reads along one axis.
struct DepthwiseReach {
  int64_t phase = 0, distance = 0;
};
/// Along one axis; `distance` of the first and the last element, in lines or columns of phases.
struct DepthwiseAxis {
  int64_t stride = 1, pad = 0, step = 1, kernel = 1, size = 1, places = 1;

  DepthwiseReach reach(int64_t element) const {
    const int64_t from = element * step - pad;
    const int64_t distance = from >= 0 ? from / stride : -ceil_div(-from, stride);
    return {from - distance * stride, distance};
  }
  /// Between elements that follow one another in a phase.
  int64_t between() const { return step / std::gcd(step, stride); }
  /// Of a phase of all, or one that holds as many places.
  int64_t length() const { return std::max(places, ceil_div(size, stride)); }
  /// How far any element reaches before and behind its place.
  int64_t before() const { return std::max<int64_t>(0, -reach(0).distance); }
  int64_t after() const { return std::max<int64_t>(0, reach(kernel - 1).distance); }
};

struct DepthwiseLayout {
  DepthwiseAxis down, right;

  int64_t phases() const { return down.stride * right.stride; }
  int64_t pitch() const { return right.length(); }
  /// A copy of so many lines with what is read around them, on both sides as much as on one, so that gradients may be
  /// read in reverse.
  int64_t lines_around() const { return std::max(down.before(), down.after()); }
  int64_t columns_around() const { return std::max(right.before(), right.after()); }
  /// Floats before the first line of a copy, and of the copy.
  int64_t first_float() const { return lines_around() * pitch() + columns_around(); }
  int64_t copy_floats(int64_t lines) const { return 2 * first_float() + lines * pitch() + kDepthwiseSlack; }
  /// Of all phases, and of the places.
  int64_t floats(int64_t lines) const { return (phases() + 1) * copy_floats(lines); }
  /// Of one column of the kernel, and of all.
  int64_t mask_floats() const { return pitch() + 2 * kDepthwiseSlack; }
  int64_t all_mask_floats() const { return right.kernel * mask_floats(); }
  /// Lines of a block, of `lines` in all: as even as possible.
  int64_t lines_of_block(int64_t lines) const {
    const int64_t largest = std::max<int64_t>(1, kDepthwisePlaces / pitch());
    return ceil_div(lines, ceil_div(lines, largest));
  }
};

inline DepthwiseLayout depthwise_layout(const WindowShape& shape) {
  return {
      .down = {shape.stride_down, shape.pad_top, shape.step_down, shape.kernel_height, shape.height, shape.places_down},
      .right = {shape.stride_right, shape.pad_left, shape.step_right, shape.kernel_width, shape.width,
                shape.places_right}};
}

/// Whether the loops can compute it. Sizes of a stranger's model are of any magnitude.
inline bool fits_depthwise(const WindowShape& shape) {
  constexpr int64_t kLargest = kMaxDepthwiseFloats;
  for (const int64_t size :
       {shape.width, shape.places_right, shape.pad_left, shape.pad_top, shape.stride_down, shape.stride_right,
        shape.kernel_height, shape.kernel_width, shape.step_down, shape.step_right})
    if (size > kLargest) return false;
  if (shape.windows() < 1 || shape.channels < 1 || shape.kernel() > kMaxDepthwiseKernel) return false;
  const DepthwiseLayout layout = depthwise_layout(shape);
  // Blocks of places may have more lines than those of phases, where their even sizes differ.
  const int64_t lines = std::max(layout.lines_of_block(shape.places_down), layout.lines_of_block(layout.down.length()));
  return layout.phases() <= kMaxDepthwisePhases && layout.first_float() <= kLargest &&
         layout.floats(lines) <= kMaxDepthwiseFloats && layout.all_mask_floats() <= kMaxDepthwiseFloats;
}

/// What a plane takes beside the products, as the cost model counts it: copies of lines, sums and calls.
inline constexpr double kFlopsOfDepthwisePlane = 3000;

/// Whether a pass is computed by the loops, else by LibTorch, whose kernels by channels in blocks of 16 go faster over
/// small planes, and over somewhat larger ones with strides. But it has none for weight gradients of large kernels, and
/// for input gradients in bfloat16 with strides, which take ten times as long. Measured in programs on an EPYC of the
/// fourth generation, and by bench/kernels/depthwise.cpp.
inline bool convolves_depthwise(ConvolutionPass pass, const WindowShape& shape, bool is_bfloat) {
  constexpr int64_t kFewPlaces = 20, kFewStridedPlaces = 100, kLargeKernel = 16;
  if (!fits_depthwise(shape)) return false;
  const bool is_weight_gradient = pass == ConvolutionPass::kWeightGradient;
  if (is_weight_gradient && shape.kernel() >= kLargeKernel) return true;
  if (!shape.has_strides()) return shape.places() >= kFewPlaces;
  if (pass == ConvolutionPass::kInputGradient && is_bfloat) return true;
  return !is_weight_gradient && shape.places() >= kFewStridedPlaces;
}

}  // namespace graphpipe::wire
