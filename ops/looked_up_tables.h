#pragma once
// The tensors whose rows are looked up, such as the tables of embeddings: optimizers update them by other rules than
// matrices (runtime/optimizers/update_rule.h).

#include "ir/graph.h"

namespace graphpipe::ops {

/// Those of which a node looks up rows (OpDef::looks_up_rows), whatever else reads them.
IdSet<ir::ValueId> looked_up_tables(const ir::Graph& graph);

}  // namespace graphpipe::ops
