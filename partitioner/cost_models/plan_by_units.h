#pragma once
// The searches of other projects' planners as planners of plan graphs. A model is priced at each micro-batch size,
// planned in the search's own terms, and what it finds is compared with every other plan; a profile is planned in its
// unit of work.

#include "partitioner/cost_models/unit_request.h"
#include "partitioner/planner.h"

namespace graphpipe::partitioner {

/// Of a model: nodes that share a stage are one; replicas take whole micro-batches in turn where there are enough of
/// them, else parts of each. Of a profile: plan_unit_of_profile. Needs: the planner has a search. Errors: kUsage for
/// forced replicas, which these planners do not know; else as for every planner.
Result<PlanAnswer> plan_by_units(const PlannerEntry& planner, const PlanRequest& request);

/// One candidate, with the planner's own terms; its stages are in the order of the planner and may be such that no
/// stage graph has them. Nodes of one colocated set are one, except for max-throughput, which knows them. Needs:
/// request.profile.
Result<PlanAnswer> plan_unit_of_profile(const PlannerEntry& planner, const PlanRequest& request);

/// The request's cluster as these planners see it, without CPUs among its levels.
MachineLevels machine_of(const PlanRequest& request);
/// Devices up to the end of each host; empty where there is one.
std::vector<int> machine_ends(const PlanRequest& request);

}  // namespace graphpipe::partitioner
