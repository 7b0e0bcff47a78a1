#pragma once
// What the normalisations share: all gradients from one kernel call, and outputs that exist only because the
// gradient needs them.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/infer_helpers.h"
#include "ops/op_def.h"

namespace graphpipe::ops {

/// Rejects gradients of outputs `first` and later: they are saved statistics, not results.
Status expect_no_gradient_of_saved(const GradientBuilder& builder, size_t first);

/// Adds the node that computes the gradients of a normalisation, of x, scale and bias (inputs 0 to 2), as far as they
/// are wanted: `op`GradInput, whose first output is that of x, or `op`GradWeight. Its attributes "gives_scale" and
/// "gives_bias" tell of which others, scale first. One node, because kernels read all that they take of x for any of
/// them, and the gradient of x takes sums that the others are.
void add_norm_gradients(GradientBuilder& builder, std::string_view op, const std::vector<ir::ValueId>& inputs,
                        ir::Attributes attributes);
/// The outputs of such a node; nothing `of_x` for `op`GradWeight, `scale` is the type of the scale.
Inferred norm_gradient_values(const NodeView& node, std::optional<ir::Value> of_x, const ir::TensorType& scale);

/// Emits the statement that makes the local "parts", a tuple of the three gradients; `mask` says which: "true, false,
/// true".
using EmitNormGradients = void (*)(Emitter& emitter, std::string_view mask);
/// The emission of `op`GradInput and of `op`GradWeight.
void emit_norm_grad_input(Emitter& emitter, EmitNormGradients emit);
void emit_norm_grad_weight(Emitter& emitter, EmitNormGradients emit);

}  // namespace graphpipe::ops
