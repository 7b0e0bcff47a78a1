#include "passes/readers.h"

namespace graphpipe::passes {

Readers::Readers(const ir::Graph& graph) {
  IdMap<ir::ValueId, size_t> count(graph.value_count());
  for (ir::NodeId id : graph.node_ids())
    for (ir::ValueId input : graph.node(id).inputs)
      if (input.valid()) ++count[input];
  for (const ir::Output& output : graph.outputs()) ++count[output.value];
  for (ir::NodeId id : graph.node_ids()) {
    std::vector<bool>& alone = alone_.emplace_back();
    for (ir::ValueId input : graph.node(id).inputs) alone.push_back(input.valid() && count[input] == 1);
  }
}

}  // namespace graphpipe::passes
