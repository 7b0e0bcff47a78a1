#pragma once
// Graphs of fewer nodes that stand for a large one: searches run on them, and their plans are plans of the large graph.

#include <vector>

#include "ir/assignment.h"
#include "partitioner/graphpipe/search_space.h"

namespace graphpipe::partitioner {

using NodeSets = std::vector<std::vector<ir::PlanNodeId>>;

/// A plan graph whose node i stands for members[i] of another. Every plan of it costs what the plan of the large graph
/// costs that keeps the members together, except that gradients which several readers of a set send back count once.
struct CoarseGraph {
  ir::PlanGraph graph;
  NodeSets members;
};

/// Needs: the sets are a partition of the nodes, each ascending, without cycles between them. They are renumbered in
/// topological order. Colocated nodes must be in one set.
CoarseGraph contract(const ir::PlanGraph& graph, NodeSets sets);

/// The plan of the large graph that a plan of the contracted one stands for.
ir::Assignment expand(const CoarseGraph& small, size_t nodes, const ir::Assignment& assignment);

struct CoarsenLimits {
  /// No set has more than 1 / `parts` of all work and weights, unless it is one group.
  double parts = 1;
  /// Groups of different stages stay apart, and those at a boundary between stages stay alone; null: no boundaries.
  const IdMap<ir::PlanNodeId, ir::StageId>* stage_of = nullptr;
  /// A set that sends on less than a quarter of the bytes that it receives joins none of its readers, so that stages
  /// can end there: the mean over a sequence stays with the branch that it ends.
  bool keeps_narrow_ends = false;
};

/// Merges groups into larger ones, only where no cycle can come about: into the only reader, with the only producer,
/// or, where more than 8 are side by side, with one that has the same readers and producers. Nodes of different
/// scopes stay apart.
NodeSets coarsen(const ir::PlanGraph& graph, const NodeGroups& groups, const CoarsenLimits& limits);

}  // namespace graphpipe::partitioner
