#pragma once
// Checks the invariants that graph.h states. Passes run it between each other; a reader runs it on what it read.

#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::ir {

/// A further check of one node, such as its types against the op dictionary, which this folder does not know.
using NodeCheck = Status (*)(const Graph&, NodeId);

/// Reports all problems, each with the node's, parameter's, input's or output's name (kBadModel).
/// Checked: every value has exactly one producer; nodes are in topological order; forward nodes read no gradients, and
/// input gradients no weight gradients; gradient nodes serve a forward node; dims and sizes are within limits; batch
/// kinds agree with shapes; parameters have fixed types, data of that size and names of their own; the loss is a
/// scalar; gradients have the type of what they are the gradient of. `check`, if given, runs on every node of a graph
/// that has none of these problems.
Status verify_graph(const Graph& graph, NodeCheck check = nullptr);

}  // namespace graphpipe::ir
