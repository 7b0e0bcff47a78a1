#pragma once
// An independent check of a plan of a layer graph: everything is derived again from the lists of layers, sharing no
// code with the planners and none with price_layer_plan.

#include "partitioner/cost_models/layer_request.h"

namespace graphpipe::partitioner {

/// How far the recomputed objective may be from what the planner claims, relatively.
inline constexpr double kObjectiveTolerance = 1e-12;

/// Problems found, each once; empty for a sound answer. Checked: every layer in exactly one stage, no empty stage;
/// edges lead to the same or a later stage (of a training graph with backward layers: those between forward layers);
/// classes together; devices in range, each once (stages with one device may share it where request and terms say so),
/// as many as replicas and degree say; no replicas where they are forbidden; degrees, variants and supported layers;
/// groups that nest; enough micro-batches for two versions of the weights, where the terms count two; memory; the
/// objective to kObjectiveTolerance, and a bound that is not beyond it.
Diagnostics check_layer_plan(const LayerPlanRequest& request, const LayerPlanAnswer& answer);

/// The objective of a plan in the answer's unit, computed from the lists of layers alone.
double recomputed_objective(const LayerPlanRequest& request, const LayerPlanAnswer& answer);

}  // namespace graphpipe::partitioner
