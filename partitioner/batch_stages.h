#pragma once
// Stages that hold nodes which work on samples together (PlanNode::scope). Where these are those of the whole batch, it
// is the stage's only micro-batch; and unless replicas exchange sums over them (PlanNode::sums_over_replicas), the
// stage has one. Planners that think in one micro-batch size, or in replicas of everything, make sound plans of theirs
// with these.

#include "ir/assignment.h"

namespace graphpipe::partitioner {

/// For each stage whether it holds a node that works on the whole batch.
IdMap<ir::StageId, bool> batch_stages(const ir::PlanGraph& graph, const ir::Assignment& assignment);
/// For each stage whether it holds a node whose replicas split what it works on together, batch or micro-batch.
IdMap<ir::StageId, bool> summing_stages(const ir::PlanGraph& graph, const ir::Assignment& assignment);

/// The former get the batch as their micro-batch, which their replicas split, and k = 1.
void give_whole_batch(const ir::PlanGraph& graph, ir::Assignment& assignment);

/// The nodes that work on the whole batch, all that must share a stage with one of them and all that follow them,
/// ascending: what is left can be a stage of its own, and so can they.
std::vector<ir::PlanNodeId> batch_nodes_and_below(const ir::PlanGraph& graph);

/// A stage with replicas that holds nodes which work on the whole batch in one place becomes two: they, their colocated
/// nodes and what follows them in the stage run on its first device, which they share with the replicas of the rest;
/// and all that holds nodes which work on the whole batch gets it. A stage of nothing else keeps one device. Needs:
/// stages without cycles, colocated nodes in one stage.
void separate_batch_nodes(const ir::PlanGraph& graph, ir::Assignment& assignment);

}  // namespace graphpipe::partitioner
