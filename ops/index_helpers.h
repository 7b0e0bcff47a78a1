#pragma once
// What look-ups and updates by integer tensors share.

#include <string>

#include "ops/infer_helpers.h"
#include "ops/op_def.h"

namespace graphpipe::ops {

/// Input i as an int64 tensor, which all of ATen's index arguments accept.
std::string long_indices(const Emitter& emitter, size_t i);
/// Samples stay separate unless the indexed axis is the batch.
Mixing mixing_along(const ir::Shape& shape, size_t axis);
/// The attribute "axis" of a node that indexes `data` element by element; rejects shapes with which ATen would read out
/// of bounds.
Result<int> element_axis(const NodeView& node, const ir::Shape& data, const ir::Shape& indices);
/// The attribute "axis" of a node that has passed inference.
int checked_axis(const NodeView& node, const ir::Shape& shape);
/// Declares the indices of input i into `data` along the axis, with negative ones counted from the end, and returns
/// their name. Indices that are out of range are left for ATen to reject.
std::string positive_indices(Emitter& emitter, size_t i, const ir::Shape& data, int axis);

/// Bytes of int64 copies of the indices of input i: those that long_indices() makes, and in addition, if they are
/// `masked`, an upper bound on what positive_indices() needs.
double index_scratch(const NodeView& node, size_t i, Samples samples, bool masked);
/// The work of a copy from which positive_indices() of input 1 selects.
Work indexed_copy_work(const NodeView& node, Samples samples);

}  // namespace graphpipe::ops
