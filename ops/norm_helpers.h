#pragma once
// What the normalisations share: scale and bias gradients from one kernel call, and outputs that exist only because the
// gradient needs them.

#include <string>
#include <string_view>
#include <vector>

#include "ops/infer_helpers.h"
#include "ops/op_def.h"

namespace graphpipe::ops {

/// Rejects gradients of outputs `first` and later: they are saved statistics, not results.
Status expect_no_gradient_of_saved(const GradientBuilder& builder, size_t first);

/// Adds one node for the wanted gradients of scale (input 1) and bias (input 2). Its attributes "gives_scale" and
/// "gives_bias" tell which, so it has one or two outputs, scale first.
void add_affine_gradients(GradientBuilder& builder, std::string_view op, const std::vector<ir::ValueId>& inputs,
                          ir::Attributes attributes);
/// The outputs of such a node; `type` is that of the scale.
Inferred affine_gradient_values(const NodeView& node, const ir::TensorType& type);
/// "true, false": which of the two a kernel should compute.
std::string affine_mask(const NodeView& node);
/// Assigns the outputs from `parts`, a tuple of (input, scale, bias) gradients.
void assign_affine_gradients(Emitter& emitter, std::string_view parts);

}  // namespace graphpipe::ops
