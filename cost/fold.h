#pragma once
// Plan graphs of profiles as graphs that can be divided into stages: each node with its backward, at the price of the
// alternative that a plan takes.

#include "ir/assignment.h"
#include "ir/plan_graph.h"

namespace graphpipe::cost {

/// A plan graph in which each node has its backward, and colocated nodes with everything on a cycle between them are
/// one node.
struct FoldedGraph {
  ir::PlanGraph graph;
  /// Of each node of the graph that was folded.
  IdMap<ir::PlanNodeId, ir::PlanNodeId> node_of;
};

/// A backward half is the backward of the node that its colocated set becomes: its edges are turned round, unless the
/// file writes them along the forward edges of their sets already (all published layer graphs do); what it reads of
/// forward nodes is the business of the stash. A set sends to others one tensor as large as the largest of each of its
/// nodes together. A graph without halves and colocated sets stays as it is.
/// Needs: a verified graph with linear prices.
FoldedGraph fold_backward(const ir::PlanGraph& graph);

/// The plan of the folded graph that a plan of the unfolded one stands for. Errors (kBadPlan): nodes of one set are in
/// different stages.
Result<ir::Assignment> fold(const FoldedGraph& folded, const ir::Assignment& assignment);
/// The plan of the unfolded graph. Needs: no alternatives, or nothing is folded.
ir::Assignment unfold(const FoldedGraph& folded, const ir::Assignment& assignment);

/// The graph in which each node has the price of the alternative that the assignment names, with the collectives of its
/// degree at the boundaries of its stage, once in each direction at `bandwidth` bytes per second. Where an alternative
/// holds more than twice its weights, the rest are buffers.
ir::PlanGraph with_alternatives(ir::PlanGraph graph, const ir::Assignment& assignment, double bandwidth);

}  // namespace graphpipe::cost
