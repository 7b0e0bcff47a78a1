#pragma once
// Which nodes change meaning with the micro-batch size.

#include "ir/graph.h"
#include "ir/plan_graph.h"
#include "support/diagnostic.h"

namespace graphpipe::driver {

/// One note for each node that starts to mix samples (docs/semantics.md, section 1): training-mode BatchNorm, a
/// contrastive loss. Sums over samples, which most losses are, do not count.
Diagnostics mixing_notes(const ir::Graph& graph, const ir::PlanGraph& priced);

}  // namespace graphpipe::driver
