#pragma once
// Which samples a model's nodes work on together: what the flags say of it, and what the user is told.

#include "cost/sample_scopes.h"
#include "ir/model_spec.h"
#include "ir/plan_graph.h"
#include "ir/stage_graph.h"
#include "support/diagnostic.h"

namespace graphpipe::driver {

/// What --contrastive, --batchnorm and --one-sample mean for the nodes of a model.
cost::ScopeChoice scopes_of(const ir::ModelSpec& spec);

/// One note on what compares samples, one on statistics over samples: which samples, and the flag that changes it. With
/// the stages of a plan (may be null) also whether that leaves nothing to pipeline.
Diagnostics scope_notes(const ir::Graph& graph, const ir::PlanGraph& priced, const ir::StageGraph* stages);

}  // namespace graphpipe::driver
