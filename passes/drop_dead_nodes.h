#pragma once
#include "passes/pass.h"

namespace graphpipe::passes {

/// Drops every node and parameter from which no output (and, after differentiate, no gradient share) is reachable.
/// Nodes that update state in place (running statistics) live as long as their outputs do. Needs: a verified graph.
/// Ensures: same inputs and outputs, dense ids in topological order.
Result<ir::Graph> drop_dead_nodes(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
