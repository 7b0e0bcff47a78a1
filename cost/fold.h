#pragma once
// Converts plan graphs of profiles into graphs that can be divided into stages: each node is merged with its backward,
// at the cost of the alternative that a plan chooses.

#include "ir/assignment.h"
#include "ir/plan_graph.h"

namespace graphpipe::cost {

/// A plan graph in which each node includes its backward, and colocated nodes together with everything on a cycle
/// between them are one node.
struct FoldedGraph {
  ir::PlanGraph graph;
  /// Of each node of the graph that was folded.
  IdMap<ir::PlanNodeId, ir::PlanNodeId> node_of;
};

/// A backward half becomes the backward of the node that its colocated set is merged into: its edges are reversed,
/// unless the file already writes them along the forward edges of their sets (all published layer graphs do); what it
/// reads of forward nodes is accounted for by the stash. A set sends to others one tensor as large as the largest of
/// each of its nodes together. A graph without halves and colocated sets is unchanged. Needs: a verified graph with
/// linear prices.
FoldedGraph fold_backward(const ir::PlanGraph& graph);

/// The plan of the folded graph that corresponds to a plan of the unfolded one. Errors (kBadPlan): nodes of one set are
/// in different stages.
Result<ir::Assignment> fold(const FoldedGraph& folded, const ir::Assignment& assignment);
/// The plan of the unfolded graph. Needs: no alternatives, or nothing was folded.
ir::Assignment unfold(const FoldedGraph& folded, const ir::Assignment& assignment);

/// The graph in which each node has the price of the alternative that the assignment names, plus the collectives of its
/// degree at the boundaries of its stage, once in each direction at `bandwidth` bytes per second. If an alternative
/// holds more than twice its weights, the rest are buffers.
ir::PlanGraph with_alternatives(ir::PlanGraph graph, const ir::Assignment& assignment, double bandwidth);

}  // namespace graphpipe::cost
