#pragma once
// Lowers nodes on element types that no operator computes in, using wider ones.

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// Whether an operand has a storage-only type, and the node does more than move or cast it.
bool needs_widening(Lowering& lowering, const OnnxNode& node);
/// Lowers the node by its handler on operands cast to int64, int32 or float32, and casts the results back, with the
/// wrap-around of the original type. Rejected if that would not be exact: powers and similar ops on uint64.
Status lower_widened(Lowering& lowering, const OnnxNode& node, Handler handler);

}  // namespace graphpipe::frontend
