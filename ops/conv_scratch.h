#pragma once
// The memory that a convolution's kernel uses in addition to its operands and its result.

#include "ops/op_def.h"

namespace graphpipe::ops {

struct ConvOperands {
  /// The operands and result of the forward.
  const ir::Value &x, &y, &weight;
  /// Which of the three the kernel computes.
  const ir::Value& made;
};

/// Whether the runtime computes it as a matrix product (wire/convolution.h): it then adds to gradient sums in place.
bool multiplies(const NodeView& node, const ConvOperands& operands, Samples samples);

/// An upper bound in bytes.
double conv_scratch(const NodeView& node, const ConvOperands& operands, Samples samples);

}  // namespace graphpipe::ops
