#pragma once
// Nodes on element types that no operator computes in are lowered on wider ones.

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// Whether an operand has a type that is stored and moved only, and the node does more than that or a cast.
bool needs_widening(Lowering& lowering, const OnnxNode& node);
/// Lowers the node by its handler on operands cast to int64, int32 or float32, and casts the results back; wraps around
/// as its own type would. Refused where that would not be exact: powers and the like on uint64.
Status lower_widened(Lowering& lowering, const OnnxNode& node, Handler handler);

}  // namespace graphpipe::frontend
