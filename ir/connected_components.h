#pragma once
// Connected parts of graphs given as lists of edges (support/digraph.h), without recursion.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/digraph.h"
#include "support/union_find.h"

namespace graphpipe::ir {

/// For each node the number of its strongly connected component, from 0.
std::vector<uint32_t> strongly_connected_components(size_t nodes, const EdgeList& edges);

/// Joins sets of nodes that lie on a cycle of edges between sets: what is left between them is acyclic.
void join_cycles(const EdgeList& edges, UnionFind<>& sets);

/// For each edge, read without direction, the number of its biconnected component, from 0. Edges between the same two
/// nodes are in one part. Needs: no edge from a node to itself.
std::vector<uint32_t> biconnected_components(size_t nodes, const EdgeList& edges);

}  // namespace graphpipe::ir
