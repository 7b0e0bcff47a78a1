#include "passes/drop_dead_nodes.h"

#include "ir/rewrite.h"

namespace graphpipe::passes {

Result<ir::Graph> drop_dead_nodes(ir::Graph graph, const PassContext&) {
  return ir::keep_nodes(graph, ir::nodes_needed(graph));
}

}  // namespace graphpipe::passes
