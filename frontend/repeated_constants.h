#pragma once
// Constants that hold the same elements once for each sample of the export.
//
// A model that is exported with a batch of n repeats masks, tokens and first states for its samples, as tensors [n,
// ..]: by nodes, or in the file where an optimiser has computed them beforehand. Where one of them meets an operand
// with the batch, and its n parts are equal, each sample has its own: it becomes [1, ..], or is repeated by the batch.
// The constant 0, 1, .. n - 1 numbers the samples, and does so for any batch, also as the first index of a GatherND's
// tuples. If other parts differ, or the tensor may be a weight of the module, the check of the shapes refuses it. What
// a file with a batch of one concatenates with that sample is concatenated with each. The first state of a recurrent
// layer, [layers, n, width], is that of all samples where its rows are equal.

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// The node with such operands replaced, if it broadcasts or concatenates and has any; the constants are bound to names
/// that are not in use. Needs: the file fixes the batch.
Result<std::optional<OnnxNode>> with_own_constants(Lowering& lowering, const OnnxNode& node);

}  // namespace graphpipe::frontend
