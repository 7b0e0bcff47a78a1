#include "passes/rebuild.h"

#include <utility>

#include "passes/pass.h"

namespace graphpipe::passes {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

void copy_leaves(const Graph& from, Graph& to, IdMap<ValueId, ValueId>& stands_for) {
  for (const ir::Input& input : from.inputs()) {
    ir::Input copy = input;
    copy.value = {};
    stands_for[input.value] = to.add_input(std::move(copy), from.value(input.value));
  }
  for (ir::ParamId id : from.param_ids()) {
    ir::Param copy = from.param(id);
    copy.value = {};
    stands_for[from.param(id).value] = to.param(to.add_param(std::move(copy), from.value(from.param(id).value))).value;
  }
}

Result<Graph> rebuild(Graph graph, const Rule& rule) {
  Graph made;
  IdMap<ValueId, ValueId> stands_for(graph.value_count());
  copy_leaves(graph, made, stands_for);
  bool changed = false;
  std::vector<ir::Value> outputs;
  for (NodeId id : graph.node_ids()) {
    const Node& old = graph.node(id);
    Node node = old;
    node.outputs.clear();
    for (ValueId& input : node.inputs)
      if (input.valid()) input = stands_for[input];
    outputs.clear();
    for (ValueId output : old.outputs) outputs.push_back(graph.value(output));
    GP_TRY(Replacement replacement, rule({made, node, outputs}));
    if (!replacement) {
      GP_TRY(const NodeId copy, append_node(made, std::move(node)));
      replacement = made.node(copy).outputs;
    } else {
      changed = true;
    }
    GP_CHECK(replacement->size() == old.outputs.size());
    for (size_t i = 0; i < old.outputs.size(); ++i) {
      GP_CHECK(made.value((*replacement)[i]).type == outputs[i].type);
      stands_for[old.outputs[i]] = (*replacement)[i];
    }
  }
  if (!changed) return graph;
  for (ir::Output output : graph.outputs()) {
    output.value = stands_for[output.value];
    made.outputs().push_back(std::move(output));
  }
  made.loss() = graph.loss();
  return made;
}

Result<ValueId> append_like(Graph& graph, const Node& like, std::string_view op, std::vector<ValueId> inputs,
                            ir::Attributes attributes) {
  Node node;
  node.op = op;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  node.origins = like.origins;
  GP_TRY(const NodeId id, append_node(graph, std::move(node)));
  return graph.node(id).outputs.front();
}

}  // namespace graphpipe::passes
