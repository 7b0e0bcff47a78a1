#pragma once
// The space that the planners search: a chain of elements, each a set of nodes that stay together or a parallel block
// of branches, which are chains again. A stage is one of
//   1. consecutive elements of a chain, parallel blocks whole;
//   2. the same, with the tail of one branch, or some whole branches, of the parallel block just above;
//   3. the same, with the head of one branch, or some whole branches, of the parallel block just below;
//   4. some whole branches of a parallel block (two or more; one branch is a chain of its own).
// "Some" branches are consecutive in the block's order. So a join shares a stage with the branch that feeds it most,
// and a fork with one that it feeds.

#include <vector>

#include "ir/plan_graph.h"
#include "partitioner/decompose.h"

namespace graphpipe::partitioner {

/// Nodes that stay together: colocated sets as one item, all else alone; in topological order.
struct Items {
  std::vector<std::vector<ir::PlanNodeId>> nodes;
  ItemGraph graph;
  /// Cheapest seconds per sample of each.
  std::vector<double> weight;
};
/// Colocated sets that would close a circle take in the nodes on it.
Items make_items(const ir::PlanGraph& graph);

struct SearchChain;
struct SearchElement {
  /// All nodes inside, ascending.
  std::vector<ir::PlanNodeId> nodes;
  /// Ids of the branches' chains; empty for a set of nodes that stay together.
  std::vector<int> branches;
};
struct SearchChain {
  std::vector<SearchElement> elements;
};
struct SearchSpace {
  /// Chains below their parents; the last is the whole graph.
  std::vector<SearchChain> chains;
};

/// The space of a series-parallel tree of the items. Subtrees and neighbours in a chain whose weight together is below
/// `smallest` become one element (0: none do).
SearchSpace space_of_tree(const SpTree& tree, const Items& items, double smallest);

/// All items in one chain, depth first, so that branches follow each other.
SearchSpace space_of_line(const Items& items, double smallest);

}  // namespace graphpipe::partitioner
