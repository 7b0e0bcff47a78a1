#pragma once
// Directed graphs as lists of edges between the numbers 0 .. nodes - 1, in linear time and without recursion.
// (Boost.Graph does most of it too, at six seconds per file that includes it.)

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "support/union_find.h"

namespace graphpipe {

/// From, to. Edges may repeat.
using EdgeList = std::vector<std::pair<uint32_t, uint32_t>>;

/// Kahn's order: of the nodes whose predecessors are done the one with the smallest rank goes first, then the one with
/// the smallest number; without ranks their numbers are the ranks. Nodes on cycles and behind them are left out.
std::vector<uint32_t> topological_order(size_t nodes, const EdgeList& edges, std::span<const uint32_t> rank = {});

/// For each node the number of its strongly connected part, from 0 (Tarjan).
std::vector<uint32_t> strongly_connected_parts(size_t nodes, const EdgeList& edges);

/// Joins sets of nodes that lie on a cycle of edges between sets: what is left between them is acyclic.
void join_cycles(const EdgeList& edges, UnionFind<>& sets);

/// For each edge, read without direction, the number of its biconnected part, from 0 (Hopcroft and Tarjan). Needs: no
/// edge from a node to itself. Edges that repeat are a cycle.
std::vector<uint32_t> biconnected_parts(size_t nodes, const EdgeList& edges);

}  // namespace graphpipe
