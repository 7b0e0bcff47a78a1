#pragma once
// Quotients, remainders and shifts of uint64, built from int64 operations: there is no wider type for the cases in
// which the two differ.

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// Whether the node is a Div, a Mod or a right BitShift of uint64.
bool divides_unsigned(Lowering& lowering, const OnnxNode& node);
/// Needs: divides_unsigned(lowering, node). Exact for all numbers of the type.
Status lower_unsigned(Lowering& lowering, const OnnxNode& node);

}  // namespace graphpipe::frontend
