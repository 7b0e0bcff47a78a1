#pragma once
// Strongly connected and biconnected parts of graphs with cycles (Tarjan; Hopcroft and Tarjan), in linear time and
// without recursion. (Boost.Graph does both too, at six seconds per file that includes it.)

#include "partitioner/graph/ideals.h"

namespace graphpipe::partitioner {

/// For each node the number of its strongly connected part, from 0.
std::vector<uint32_t> strongly_connected_parts(size_t nodes, const DagEdges& edges);
/// For each edge, read without direction, the number of its biconnected part, from 0. Needs: no edge from a node to
/// itself. Edges may repeat: then they are a cycle.
std::vector<uint32_t> biconnected_parts(size_t nodes, const DagEdges& edges);

}  // namespace graphpipe::partitioner
