#pragma once
// Stages that hold nodes which work on the whole batch (PlanNode::scope): they have one replica, and the batch as their
// only micro-batch. Planners that think in one micro-batch size, or in replicas of everything, make sound plans of
// theirs with these.

#include "ir/assignment.h"

namespace graphpipe::partitioner {

/// For each stage whether it holds such a node.
IdMap<ir::StageId, bool> batch_stages(const ir::PlanGraph& graph, const ir::Assignment& assignment);

/// These stages get the batch as their micro-batch, and k = 1.
void give_whole_batch(const ir::PlanGraph& graph, ir::Assignment& assignment);

/// The nodes that work on the whole batch, all that must share a stage with one of them and all that follow them,
/// ascending: what is left can be a stage of its own, and so can they.
std::vector<ir::PlanNodeId> batch_nodes_and_below(const ir::PlanGraph& graph);

/// A stage with replicas that holds such nodes becomes two: they, their colocated nodes and what follows them in the
/// stage run on its first device, which they share with the replicas of the rest; and all get the whole batch. A stage
/// of nothing else keeps one device. Needs: stages without cycles, colocated nodes in one stage.
void separate_batch_nodes(const ir::PlanGraph& graph, ir::Assignment& assignment);

}  // namespace graphpipe::partitioner
