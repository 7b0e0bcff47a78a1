#pragma once
#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::passes {

/// Infers the node again and compares types and batch kinds of its outputs with what the graph holds. A check for
/// ir::verify_graph, which knows the structure but not the dictionary.
Status check_types(const ir::Graph& graph, ir::NodeId node);

}  // namespace graphpipe::passes
