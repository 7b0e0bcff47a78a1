#pragma once
// What look-ups and updates by integer tensors share.

#include <string>

#include "ops/infer_helpers.h"
#include "ops/op_def.h"

namespace graphpipe::ops {

/// Input i as int64 tensor: what all of ATen's index arguments accept.
std::string long_indices(const Emitter& emitter, size_t i);
/// Samples stay apart unless the indexed axis holds the batch.
Mixing mixing_along(const ir::Shape& shape, size_t axis);
/// The attribute "axis" of a node that indexes `data` element by element; refuses what ATen would read beyond.
Result<int> element_axis(const NodeView& node, const ir::Shape& data, const ir::Shape& indices);
/// The attribute "axis" of a node that has passed inference.
int checked_axis(const NodeView& node, const ir::Shape& shape);
/// Declares the indices of input i into `data` along the axis, with negative ones counted from the end, and returns
/// their name. What is out of range is left for ATen to refuse.
std::string positive_indices(Emitter& emitter, size_t i, const ir::Shape& data, int axis);

/// Bytes of indices that are int64 whatever input i is: those that long_indices() makes, and beside them, where they
/// are `masked`, what positive_indices() takes at most.
double index_scratch(const NodeView& node, size_t i, Samples samples, bool masked);
/// The work of a copy that positive_indices() of input 1 chooses from.
Work indexed_copy_work(const NodeView& node, Samples samples);

}  // namespace graphpipe::ops
