#pragma once
// The planners of layer graphs as planners of plan graphs: a model is priced at each micro-batch size, planned in the
// planner's own terms, and what it finds is evaluated like every other plan.

#include "partitioner/planners.h"

namespace graphpipe::partitioner {

/// `name`: a row of layer_planners(). Nodes that share a stage are one layer; replicas take whole micro-batches in turn
/// where there are enough of them, else parts of each. Errors: kUsage for forced replicas, which these planners do not
/// know; else as for every planner.
Result<PlanAnswer> plan_by_layers(std::string_view name, const PlanRequest& request);

}  // namespace graphpipe::partitioner
