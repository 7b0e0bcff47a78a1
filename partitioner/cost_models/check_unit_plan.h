#pragma once
// An independent check of what a search in units of work answers: everything is derived again from the assignment,
// sharing no code with the planners and none with price_plan.

#include "partitioner/cost_models/unit_request.h"

namespace graphpipe::partitioner {

/// How far the recomputed objective may be from what the planner claims, relatively.
inline constexpr double kObjectiveTolerance = 1e-12;

/// Problems found, each once; empty for a sound answer. Checked: every node in a stage, no empty stage; edges lead to
/// the same or a later stage (of a training graph with backward nodes: those between forward nodes); colocated nodes
/// together; devices in range, each once (stages with one device may share it where request and terms say so); no
/// replicas where they are forbidden; alternatives of the stage's degree, and devices that can run the nodes; groups
/// that nest; enough micro-batches for two versions of the weights, where the terms count two; memory; the objective to
/// kObjectiveTolerance, and a bound that is not beyond it.
Diagnostics check_unit_plan(const UnitRequest& request, const UnitAnswer& answer);

/// The objective of a plan in the answer's unit, computed from the assignment alone.
double recomputed_objective(const UnitRequest& request, const UnitAnswer& answer);

}  // namespace graphpipe::partitioner
