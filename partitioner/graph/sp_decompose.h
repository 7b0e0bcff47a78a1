#pragma once
// Series-parallel decomposition of a DAG of vertices. The transitive reduction removes residual edges, which vanish
// from the tree; costs put them back, because they are taken from the graph itself.
//
// Example: edges 0-1, 0-2, 1-3, 2-3 and 0-3 become (0;(1|2);3): 0-3 is residual, 1 and 2 are parallel between 0 and 3.

#include <optional>
#include <vector>

#include "partitioner/graph/sp_tree.h"
#include "support/digraph.h"

namespace graphpipe::partitioner {

// Vertices are numbered in topological order.

Dag transitive_reduction(const Dag& graph);

/// The canonical tree, or nothing where the graph is not (vertex) series-parallel. Valdes, Tarjan and Lawler 1982: the
/// reduction must be a line digraph; its inverse, with an edge per vertex, is reduced by series and parallel steps.
/// Needs: at least one vertex.
std::optional<SpTree> decompose(const Dag& graph);

/// The same by definition, for tests: components of comparability (parallel) and of incomparability (series).
std::optional<SpTree> decompose_slowly(const Dag& graph);

/// A tree for any DAG, for searches only: where a part is not series-parallel it is cut into two parts in series, at
/// the cut, among the levels by longest path from above and from below, whose two critical paths are shortest together
/// (`weight` of a vertex, at least 0). Every vertex stays below all its predecessors; series-parallel parts are left
/// alone.
SpTree make_series_parallel(const Dag& graph, const std::vector<double>& weight);

}  // namespace graphpipe::partitioner
