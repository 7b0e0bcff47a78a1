#pragma once
// What the normalisations share: scale and bias gradients from one kernel call, and outputs that exist only because
// the gradient needs them.

#include <string>
#include <string_view>
#include <vector>

#include "ops/infer_helpers.h"
#include "ops/op_def.h"

namespace graphpipe::ops {

/// Refuses to differentiate through outputs `first` and later: they are saved statistics, not results.
Status expect_no_gradient_of_saved(const GradientBuilder& builder, size_t first);

/// Adds one node for the wanted gradients of scale (input 1) and bias (input 2). Its attributes "gives_scale" and
/// "gives_bias" say which, so its outputs are one or two tensors, scale first.
void add_affine_gradients(GradientBuilder& builder, std::string_view op, const std::vector<ir::ValueId>& inputs,
                          ir::Attributes attributes);
/// The outputs of such a node; `type` is that of the scale.
Inferred affine_gradient_values(const NodeView& node, const ir::TensorType& type);
/// "true, false": which of the two a kernel shall compute.
std::string affine_mask(const NodeView& node);
/// Takes the outputs out of `parts`, a tuple of (input, scale, bias) gradients.
void assign_affine_gradients(Emitter& emitter, std::string_view parts);

}  // namespace graphpipe::ops
