#pragma once
// Windows that slide over the trailing axes of [N, C, d1, ...]: what convolutions and pools share.

#include <cstdint>
#include <string>
#include <vector>

#include "ops/infer_helpers.h"
#include "ops/op_def.h"

namespace graphpipe::ops {

/// One entry per spatial axis.
struct Window {
  std::vector<int64_t> kernel, strides, dilations, begin, end;  // begin, end: pads

  size_t rank() const { return kernel.size(); }
  /// Cells that the dilated kernel spans on this axis.
  int64_t span(size_t axis) const { return dilations[axis] * (kernel[axis] - 1) + 1; }
  bool is_symmetric() const { return begin == end; }
  /// Whether no cell belongs to two positions.
  bool lies_apart() const {
    for (size_t axis = 0; axis < rank(); ++axis)
      if (strides[axis] < span(axis)) return false;
    return true;
  }
};

/// The spatial sizes of [N, C, d1, ...]: one to three fixed axes.
Result<std::vector<int64_t>> spatial_sizes(const NodeView& node, const ir::Shape& shape);
/// Reads strides, pads and dilations, with ONNX's defaults, and checks them against the kernel. Rejects auto_pad: the
/// frontend converts it to pads.
Result<Window> window_of(const NodeView& node, std::vector<int64_t> kernel);

/// Number of positions of the window on an axis of this size. Rounding up adds a last position that starts inside the
/// input or its leading pad. 0 if the window does not fit.
int64_t position_count(const Window& window, size_t axis, int64_t size, bool rounds_up);

/// `{begin_last, end_last, .., begin_first, end_first}`: pads as at::constant_pad_nd takes them.
std::vector<int64_t> innermost_first(const std::vector<int64_t>& begin, const std::vector<int64_t>& end);
std::vector<int64_t> negated(std::vector<int64_t> values);
/// "at::constant_pad_nd(expression, {..}, value)"; records the header. Negative pads remove cells.
std::string padded(Emitter& emitter, const std::string& expression, const std::vector<int64_t>& begin,
                   const std::vector<int64_t>& end, const std::string& value = "0.0");
/// A tensor that has a shape but almost no memory, for kernels that only use the size of an input:
/// "like.new_empty({1}).expand(dims)".
std::string shape_only(const std::string& like, const std::string& dims);

}  // namespace graphpipe::ops
