#pragma once
// The memory that a convolution's kernel takes beside its operands and its result.

#include "ops/op_def.h"

namespace graphpipe::ops {

struct ConvOperands {
  /// Of the forward.
  const ir::Value &x, &y, &weight;
  /// One of the three.
  const ir::Value& made;
};

/// Whether the runtime computes it as a product (wire/convolution.h): it then adds to sums of gradients in place.
bool multiplies(const NodeView& node, const ConvOperands& operands, Samples samples);

/// Bytes, at most.
double conv_scratch(const NodeView& node, const ConvOperands& operands, Samples samples);

}  // namespace graphpipe::ops
