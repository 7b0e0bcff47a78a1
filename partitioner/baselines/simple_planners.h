#pragma once
// Planners without a search: a given plan, one stage on all devices, one stage per equal share of the work.

#include "partitioner/planner.h"

namespace graphpipe::partitioner {

/// Uses PlanRequest::manual as it is. Errors: kUsage without one, kBadPlan where it breaks a rule, kNoFeasiblePlan
/// where it does not fit.
Result<PlanAnswer> plan_manual(const PlanRequest& request);

/// One stage with as many replicas as there are devices (fewer where the micro-batch has fewer samples).
Result<PlanAnswer> plan_data_parallel(const PlanRequest& request);

/// Cuts the depth-first line of nodes into as many runs as there are devices (or stages asked for), as even in work as
/// the order allows; no replicas.
Result<PlanAnswer> plan_equal_split(const PlanRequest& request);

/// Model parallelism: the stages of plan_equal_split, one per device, with the whole batch as one micro-batch unless
/// the request names a size. Devices run one after the other; the baseline that pipelines are measured against.
Result<PlanAnswer> plan_model_parallel(const PlanRequest& request);

}  // namespace graphpipe::partitioner
