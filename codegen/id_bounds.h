#pragma once
#include "ir/graph.h"
#include "wire/id_bounds.h"

namespace graphpipe::codegen {

/// The integers that an input may hold, as far as its readers tell (OpDef::ids): rows of the table that it indexes,
/// classes of the loss and the label that does not count. Readers of the very elements of the input count, not those of
/// what is computed from it or of a part of it. Unbounded where nothing tells.
wire::IdBounds id_bounds(const ir::Graph& graph, ir::ValueId input);

}  // namespace graphpipe::codegen
