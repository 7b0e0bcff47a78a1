#pragma once
// The window parameters of a convolution node, shared by its checks, its calls and its memory estimate.

#include <cstdint>
#include <vector>

#include "ops/op_def.h"
#include "ops/spatial.h"

namespace graphpipe::ops {

struct ConvForm {
  Window window;
  int64_t groups = 1;
  std::vector<int64_t> output_padding;
  std::vector<int64_t> sizes;  // spatial, of x
};

bool is_transposed(const NodeView& node);
/// Rejects shapes that cannot be convolved. `x` and `weight`: the forward's shapes.
Result<ConvForm> conv_form(const NodeView& node, const ir::Shape& x, const ir::Shape& weight);
/// Whether the runtime chooses the algorithm (runtime/kernels/convolution.h).
bool is_plane(const NodeView& node, const ConvForm& form);

/// Whether each channel has a kernel and one result (runtime/kernels/depthwise_convolution.h). `weight`: its shape.
bool is_depthwise(const NodeView& node, const ConvForm& form, const ir::Shape& x, const ir::Shape& weight);

/// The sizes of fixed dims.
std::vector<int64_t> fixed_sizes(ir::Shape::const_iterator begin, ir::Shape::const_iterator end);

}  // namespace graphpipe::ops
