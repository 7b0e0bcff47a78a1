#pragma once
// What `gradient` functions share. All of them do nothing for an input whose gradient is not wanted.

#include <string_view>

#include "ops/op_def.h"

namespace graphpipe::ops {

/// Passes output 0's gradient to input i, summed down to the input's shape.
void pass_gradient(GradientBuilder& builder, size_t i);
/// Sets the gradient of input i to `gradient`, summed down to the input's shape.
void set_reduced(GradientBuilder& builder, size_t i, ir::ValueId gradient);
/// {shape: the shape of input i}: the target of a Reshape back, or the size of a gradient that is partially filled.
ir::Attributes target_attribute(const GradientBuilder& builder, size_t i);

}  // namespace graphpipe::ops
