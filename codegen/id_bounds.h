#pragma once
#include "ir/graph.h"
#include "wire/id_bounds.h"

namespace graphpipe::codegen {

/// The integers that an input may hold, as far as its readers determine them (OpDef::ids): rows of the table that it
/// indexes, classes of the loss and the label that does not count. Only readers of the input's own elements count, not
/// those of values computed from it or of a part of it. Unbounded if nothing determines them.
wire::IdBounds id_bounds(const ir::Graph& graph, ir::ValueId input);

}  // namespace graphpipe::codegen
