#include "ops/looked_up_tables.h"

#include "ops/op_def.h"

namespace graphpipe::ops {

IdSet<ir::ValueId> looked_up_tables(const ir::Graph& graph) {
  IdSet<ir::ValueId> tables(graph.value_count());
  for (const ir::NodeId id : graph.node_ids()) {
    const ir::Node& node = graph.node(id);
    if (looks_up_rows({graph, node})) tables.insert(node.inputs.front());
  }
  return tables;
}

}  // namespace graphpipe::ops
