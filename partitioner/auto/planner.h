#pragma once
// The default planner: the best of everything.
//
// 1. The plans of the other planners; of exhaustive search where there are few plans. Those of other projects leave out
//    micro-batch sizes whose work alone takes as long as the best step so far.
// 2. GraphPipe's search again, with recomputation as a decision, and over the graph with fewer and fewer branches side
//    by side: between GraphPipe's stages, which take parts of one branch, and those of a line, which take parts of all.
// 3. A local search on the true graph from the best of these; forced replicas stay where they are forced.
// 4. Where it is cheap enough, 1 to 3 again with a parameter fixed that the request leaves open: each micro-batch size,
//    numbers of stages, fewer devices. So a request that fixes one of them finds nothing better (narrowed.cpp).
// 5. The local search from the best plan once more, by the request's `evaluate`.
// On machines of several hosts the planners of steps 1 and 2 are asked once more, with stages that keep to hosts.
// Not exact: more memory or bandwidth may lead it to another, worse local optimum.
// All by cost::iteration_time, the best few by the request's `evaluate`.
//
// Example: 12 nodes on two devices, 8 samples. Step 4 takes 1 to 3 again with micro-batches of 1 and 2, then 4, then 8
// samples; for sizes that come near the best plan then also with one stage, with two, and on one device.

#include <optional>
#include <vector>

#include "partitioner/planner.h"

namespace graphpipe::partitioner {

Result<PlanAnswer> plan_auto(const PlanRequest& request);

/// Steps 1 to 3.
Result<PlanAnswer> search_as_asked(const PlanRequest& request);

/// As graphpipe and sequential answer where they are asked by themselves: with stages that keep to hosts.
std::vector<Result<PlanAnswer>> search_within_groups(PlanRequest request);

/// The step as objective, and the bounds of the whole request.
void set_own_objectives(const PlanRequest& request, PlanAnswer& answer);

/// Adds the candidates of one answer to those of another, the best step first.
void merge_answers(std::optional<PlanAnswer>& all, PlanAnswer answer);

}  // namespace graphpipe::partitioner
