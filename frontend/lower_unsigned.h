#pragma once
// Quotients, remainders and shifts of uint64, made of int64: where the two types differ there is no wider one.

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// Whether the node is a Div, a Mod or a BitShift to the right of uint64.
bool divides_unsigned(Lowering& lowering, const OnnxNode& node);
/// Needs: divides_unsigned(lowering, node). Exact for all numbers of the type.
Status lower_unsigned(Lowering& lowering, const OnnxNode& node);

}  // namespace graphpipe::frontend
