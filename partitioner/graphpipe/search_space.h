#pragma once
// The space that the planners search: a chain of elements, each a set of nodes that stay together or a parallel block
// of branches, which are chains again. A stage is one of
//   1. consecutive elements of a chain, parallel blocks whole;
//   2. the same, with the tail of one branch, or some whole branches, of the parallel block just above;
//   3. the same, with the head of one branch, or some whole branches, of the parallel block just below;
//   4. some whole branches of a parallel block (two or more; one branch is a chain of its own).
// "Some" branches are consecutive in the block's order. So a join shares a stage with the branch that feeds it most,
// and a fork with one that it feeds.
//
// Example: a -> (b1 -> b2 | c | d) -> e. {a} and {a, b1, b2, c, d} are stages of kind 1, {b2, e} and {c, d, e} of kind
// 2, {a, b1} of kind 3, {c, d} of kind 4; {b1, b2} is one of kind 1 in the branch's own chain.

#include <vector>

#include "ir/plan_graph.h"
#include "partitioner/graph/sp_decompose.h"

namespace graphpipe::partitioner {

/// Nodes that stay together: each colocated set is a group, every other node one of its own; in topological order.
struct NodeGroups {
  std::vector<std::vector<ir::PlanNodeId>> nodes;
  Dag graph;
  /// Cheapest seconds per sample of each.
  std::vector<double> weight;
};
/// Colocated sets that would close a cycle take in the nodes on it.
NodeGroups group_nodes(const ir::PlanGraph& graph);

struct SearchChain;
struct SearchElement {
  /// All nodes inside, ascending.
  std::vector<ir::PlanNodeId> nodes;
  /// Ids of the branches' chains; empty for a set of nodes that stay together.
  std::vector<int> branches;
};
struct SearchChain {
  std::vector<SearchElement> elements;
  /// All nodes, element by element.
  std::vector<ir::PlanNodeId> nodes;
  /// The lowest number among the chains of the same shape: equal prices and equal edges, inside and across the
  /// boundary, node by node. Chains of one shape are solved once.
  int shape = 0;
};
struct SearchSpace {
  /// Chains below their parents; the last is the whole graph.
  std::vector<SearchChain> chains;
  /// Elements of all chains.
  size_t elements() const;
};

/// The space of a series-parallel tree of the groups. Subtrees and neighbours in a chain whose weight together is below
/// `smallest` become one element (0: none do).
SearchSpace space_of_tree(const SpTree& tree, const NodeGroups& groups, double smallest);

/// A tree with at most `lanes` branches side by side: the lightest are put behind each other, so that a stage may take
/// the end of one and the beginning of the next. One lane is close to a line of all groups. `weight` of a group.
SpTree in_lanes(const SpTree& tree, size_t lanes, const std::vector<double>& weight);
/// The most branches of a parallel part of the tree.
size_t widest(const SpTree& tree);

/// Sets SearchChain::shape for a space of this graph.
void find_shapes(const ir::PlanGraph& graph, SearchSpace& space);

/// All groups in one chain, depth first, so that branches follow each other.
SearchSpace space_of_line(const NodeGroups& groups, double smallest);

}  // namespace graphpipe::partitioner
