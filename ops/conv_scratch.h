#pragma once
// The memory that a convolution's kernel uses in addition to its operands and its result.

#include <optional>

#include "ops/op_def.h"
#include "wire/convolution.h"

namespace graphpipe::ops {

struct ConvOperands {
  /// The operands and result of the forward.
  const ir::Value &x, &y, &weight;
  /// Which of the three the kernel computes.
  const ir::Value& made;
};

/// Whether each channel has a kernel and one result, as conv_form.h says.
bool is_depthwise(const NodeView& node, const ConvOperands& operands);

/// The pass, if Winograd's method may compute it (wire/convolution.h): the runtime chooses by measurement.
std::optional<wire::Convolution> winograd_pass(const NodeView& node, const ConvOperands& operands, Samples samples);

/// Whether the runtime computes it with loops of its own, which add to gradient sums in place: as a matrix product
/// of float32 (wire/convolution.h) or channel by channel (wire/depthwise.h).
bool adds_in_place(const NodeView& node, const ConvOperands& operands, Samples samples);

/// An upper bound in bytes, whatever the runtime chooses.
double conv_scratch(const NodeView& node, const ConvOperands& operands, Samples samples);

}  // namespace graphpipe::ops
