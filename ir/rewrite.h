#pragma once
// What passes are made of: which nodes are needed, keep only those.

#include <span>

#include "ir/graph.h"

namespace graphpipe::ir {

/// The nodes that the values are computed from, their producers included. A gradient node also needs the forward node
/// that it serves and the producer of the value whose gradients it sums, because it names them.
IdSet<NodeId> ancestors_of(const Graph& graph, std::span<const ValueId> values);
/// The same for all outputs and all gradient shares.
IdSet<NodeId> nodes_needed(const Graph& graph);

/// The graph without the other nodes, the values they made, and the parameters that nothing reads any more, that are no
/// output and have no gradient share. Inputs stay: they are the model's interface. Ids are dense again, in the old
/// order. Needs: every node that a live one reads or names, and the producers of all outputs, are live.
Graph keep_nodes(const Graph& graph, const IdSet<NodeId>& live);

}  // namespace graphpipe::ir
