#pragma once
// Rewrites nodes that mix samples only formally, so that their results keep a batch axis: what exporters write as a
// look-up by x[arange(B), i] takes from each sample its own row, and a reshape from [T, B, D] to [T*B, D] around a
// linear layer mixes no samples. Otherwise such a model could be neither replicated nor divided into unequal
// micro-batches.

#include "passes/pass.h"

namespace graphpipe::passes {

/// Needs: no gradient nodes. Ensures: the same outputs, up to the order of additions inside a matrix product.
/// - A look-up whose indices count 0, 1, ... over the batch becomes one with batch_dims, or a reshape; regions whose
///   samples do so become so many regions per sample.
/// - Nodes that work on rows alone move in front of a reshape that merges the batch axis into others.
/// - A reshape of such a reshape becomes one.
Result<ir::Graph> separate_samples(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
