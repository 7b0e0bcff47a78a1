#include "frontend/drop_unused.h"

namespace graphpipe::frontend {
namespace {

IdSet<ir::ValueId> needed_values(const ir::Graph& graph) {
  IdSet<ir::ValueId> needed(graph.value_count());
  for (const ir::Output& output : graph.outputs()) needed.insert(output.value);
  // Nodes are in topological order, so one backward pass visits every reader before what it reads.
  for (size_t i = graph.node_count(); i-- > 0;) {
    const ir::Node& node = graph.node(ir::NodeId(i));
    bool live = false;
    for (ir::ValueId output : node.outputs) live = live || needed.contains(output);
    if (!live) continue;
    for (ir::ValueId input : node.inputs)
      if (input.valid()) needed.insert(input);
  }
  return needed;
}

}  // namespace

Trimmed drop_unused(const ir::Graph& graph, const std::map<ir::ParamId, ParamOrigin>& origins) {
  const IdSet<ir::ValueId> needed = needed_values(graph);
  Trimmed result;
  IdMap<ir::ValueId, ir::ValueId> moved(graph.value_count());
  for (const ir::Input& input : graph.inputs()) {
    ir::Input copy = input;
    moved[input.value] = result.graph.add_input(std::move(copy), graph.value(input.value));
  }
  for (ir::ParamId id : graph.param_ids()) {
    const ir::Param& param = graph.param(id);
    const auto origin = origins.find(id);
    if (!needed.contains(param.value)) continue;
    const ir::ParamId added = result.graph.add_param(param, graph.value(param.value));
    moved[param.value] = result.graph.param(added).value;
    if (origin != origins.end()) result.origins[added] = origin->second;
  }
  for (ir::NodeId id : graph.node_ids()) {
    ir::Node node = graph.node(id);
    bool live = false;
    std::vector<ir::Value> outputs;
    for (ir::ValueId output : node.outputs) {
      live = live || needed.contains(output);
      outputs.push_back(graph.value(output));
    }
    if (!live) continue;
    for (ir::ValueId& input : node.inputs)
      if (input.valid()) input = moved[input];
    const std::vector<ir::ValueId> old = std::move(node.outputs);
    node.outputs.clear();
    const ir::NodeId added = result.graph.add_node(std::move(node), std::move(outputs));
    for (size_t i = 0; i < old.size(); ++i) moved[old[i]] = result.graph.node(added).outputs[i];
  }
  for (ir::Output output : graph.outputs()) {
    output.value = moved[output.value];
    result.graph.outputs().push_back(std::move(output));
  }
  return result;
}

}  // namespace graphpipe::frontend
