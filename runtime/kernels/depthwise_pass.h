#pragma once
// A depthwise convolution or one of its gradients as sums over copies of planes (wire/depthwise.h): what is the same
// for all planes, and the loops over a block of places.

#include <cstdint>

#include "wire/depthwise.h"

namespace graphpipe::runtime {

using wire::DepthwiseLayout;
using wire::WindowShape;

/// An element of the kernel, and how far from a place it reads.
struct KernelTap {
  int64_t offset = 0, weight = 0;
};
/// Elements of the kernel that read the same copy: `columns` columns of `height` elements each, one after the other
/// from these numbers on, in ascending order of what they read.
struct KernelPart {
  int64_t first_column = 0, columns = 0, first_tap = 0, height = 0;
};

struct DepthwisePass {
  WindowShape shape;
  DepthwiseLayout layout;
  int64_t pitch;
  /// Lines of places, or for an input gradient of phases: in all, and of a block.
  int64_t lines, lines_of_block;
  int64_t copy_floats;
  /// Floats between what the elements of a part's column read.
  int64_t between_taps;
  KernelTap taps[wire::kMaxDepthwiseKernel];
  /// By column, for the places of one line: bits where its elements are in the line too; null where they always are.
  const uint32_t* masks[wire::kMaxDepthwiseKernel];
  /// Of places: those that read phases of different lines, whose sums add up. Of phases: those of each.
  KernelPart parts[wire::kMaxDepthwisePhases];
  int64_t tap_count = 0, column_count = 0, part_count = 0;

  bool is_one_block() const { return lines_of_block == lines; }
  int64_t phases_floats() const { return layout.phases() * copy_floats; }
};

enum class DepthwiseMasks : uint8_t {
  kOfAllLines,  // go on with the places of the next line
  kOfOneLine    // end with the line, and exist for every column
};

/// The forward and the weight gradient, of places that read the copies of phases; and the input gradient, of phases
/// that read the copy of places. The masks are the calling thread's, until its next pass. Need:
/// wire::fits_depthwise(shape).
DepthwisePass pass_over_places(const WindowShape& shape, DepthwiseMasks masks);
DepthwisePass pass_over_phases(const WindowShape& shape);

/// What a thread works in.
struct alignas(64) DepthwiseMemory {
  float copies[wire::kMaxDepthwiseFloats];
  float sums[wire::kMaxDepthwiseKernel * wire::kDepthwiseLanes];
  uint32_t masks[wire::kMaxDepthwiseFloats];
};
DepthwiseMemory& depthwise_memory();

/// The loops for lines of a pitch on this processor.
struct DepthwiseLoops {
  /// sums = bias + the elements of parts [first, last) times what they read in `copies`; `weights` in the order of the
  /// taps.
  void (*sum_parts)(const DepthwisePass& pass, int64_t first, int64_t last, const float* copies, int64_t lines,
                    const float* weights, float bias, float* sums);
  /// Adds places times what all elements read in `phases` to kDepthwiseLanes sums for each element. Needs: masks of one
  /// line.
  void (*add_products)(const DepthwisePass& pass, const float* phases, const float* places, int64_t lines, float* sums);
};
DepthwiseLoops depthwise_loops(int64_t pitch);

}  // namespace graphpipe::runtime
