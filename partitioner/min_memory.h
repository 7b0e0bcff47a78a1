#pragma once
// Models that no plan fits into the devices, known without a search.

#include <string>

#include "ir/cluster.h"
#include "ir/plan_graph.h"
#include "support/result.h"

namespace graphpipe::partitioner {

/// "1.5 GiB"; below a MiB whole bytes.
std::string in_words(double bytes);

/// Compares cost::memory_bound with the devices. `shards_state`: replicas may divide the optimizer's state.
/// Errors: kNoFeasiblePlan, where the weights of one node, their gradients and the optimizer's state are larger than
/// the largest device, or those of all nodes larger than all devices together.
Status check_min_memory(const ir::PlanGraph& graph, const ir::Cluster& cluster, bool shards_state);

}  // namespace graphpipe::partitioner
