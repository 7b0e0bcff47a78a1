#include "runtime/kernels/depthwise_pass.h"

#include <algorithm>
#include <memory>

namespace graphpipe::runtime {
namespace {

using wire::DepthwiseReach;

DepthwisePass pass_of(const WindowShape& shape, bool is_over_phases) {
  DepthwisePass pass{.shape = shape, .layout = wire::depthwise_layout(shape)};
  pass.pitch = pass.layout.pitch();
  pass.lines = is_over_phases ? pass.layout.down.length() : shape.places_down;
  pass.lines_of_block = pass.layout.lines_of_block(pass.lines);
  pass.copy_floats = pass.layout.copy_floats(pass.lines_of_block);
  pass.between_taps = pass.layout.down.between() * pass.pitch;
  return pass;
}

/// Of the kernel's column whose elements read so far from their places.
const uint32_t* mask_of(const DepthwisePass& pass, DepthwiseMasks masks, int64_t column, int64_t distance) {
  const bool ends = masks == DepthwiseMasks::kOfOneLine;
  if (distance == 0 && !ends) return nullptr;
  const int64_t count = pass.layout.mask_floats();
  uint32_t* const mask = depthwise_memory().masks + column * count;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t read = i % pass.pitch + distance;
    mask[i] = read >= 0 && read < pass.pitch && !(ends && i >= pass.pitch) ? ~0U : 0U;
  }
  return mask;
}

/// Appends a part of the elements for which offset(down, right) is not negative, in the order of their offsets. Those
/// of a column read `sign` times its distance away.
template <typename Offset>
void add_part(DepthwisePass& pass, DepthwiseMasks masks, int64_t sign, const Offset& offset) {
  KernelPart part{.first_column = pass.column_count, .first_tap = pass.tap_count};
  const WindowShape& shape = pass.shape;
  for (int64_t right = 0; right < shape.kernel_width; ++right) {
    const int64_t first = pass.tap_count;
    for (int64_t i = 0; i < shape.kernel_height; ++i) {
      const int64_t down = sign > 0 ? i : shape.kernel_height - 1 - i;
      if (const int64_t at = offset(down, right); at >= 0)
        pass.taps[pass.tap_count++] = {at, down * shape.kernel_width + right};
    }
    if (pass.tap_count == first) continue;
    part.height = pass.tap_count - first;
    part.columns += 1;
    pass.masks[pass.column_count++] = mask_of(pass, masks, right, sign * pass.layout.right.reach(right).distance);
  }
  pass.parts[pass.part_count++] = part;
}

}  // namespace

DepthwisePass pass_over_places(const WindowShape& shape, DepthwiseMasks masks) {
  DepthwisePass pass = pass_of(shape, /*is_over_phases=*/false);
  const DepthwiseLayout& layout = pass.layout;
  for (int64_t phase = 0; phase < shape.stride_down; ++phase)
    add_part(pass, masks, 1, [&](int64_t down, int64_t right) -> int64_t {
      const DepthwiseReach line = layout.down.reach(down), column = layout.right.reach(right);
      if (line.phase != phase) return -1;
      return (phase * shape.stride_right + column.phase) * pass.copy_floats + layout.first_float() +
             line.distance * pass.pitch + column.distance;
    });
  return pass;
}

DepthwisePass pass_over_phases(const WindowShape& shape) {
  DepthwisePass pass = pass_of(shape, /*is_over_phases=*/true);
  const DepthwiseLayout& layout = pass.layout;
  for (int64_t phase = 0; phase < layout.phases(); ++phase)
    add_part(pass, DepthwiseMasks::kOfAllLines, -1, [&](int64_t down, int64_t right) -> int64_t {
      const DepthwiseReach line = layout.down.reach(down), column = layout.right.reach(right);
      if (line.phase * shape.stride_right + column.phase != phase) return -1;
      return layout.first_float() - line.distance * pass.pitch - column.distance;
    });
  return pass;
}

DepthwiseMemory& depthwise_memory() {
  thread_local const std::unique_ptr<DepthwiseMemory> memory = std::make_unique<DepthwiseMemory>();
  return *memory;
}

}  // namespace graphpipe::runtime
