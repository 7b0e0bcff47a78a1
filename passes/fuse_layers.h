#pragma once
// Recognises layers that exporters write as arithmetic (LayerNorm below opset 17, RMSNorm below 23, Gelu below 20) and
// replaces each by one operator: one kernel call, and a gradient that needs fewer saved values.

#include "passes/pass.h"

namespace graphpipe::passes {

/// Needs: no gradient nodes. Ensures: the same outputs up to rounding. Recognised, over the last axis:
/// - (x - mean) / sqrt(variance + eps) * scale + bias as LayerNormalization,
/// - x / sqrt(mean(x^2) + eps) * scale as RMSNormalization,
/// - x * (1 + erf(x / sqrt 2)) / 2 in any order of its factors, and the tanh form, as Gelu,
/// - x * sigmoid(x) as Silu, over any shape.
Result<ir::Graph> fuse_layers(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
