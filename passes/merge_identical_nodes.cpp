#include "passes/merge_identical_nodes.h"

#include <map>
#include <tuple>

#include "ops/op_def.h"
#include "passes/drop_dead_nodes.h"

namespace graphpipe::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

bool is_mergeable(const Graph& graph, const Node& node) {
  const ops::OpDef* entry = ops::find_op(node.op);
  if (entry == nullptr || entry->is_random) return false;
  if (entry->updates_inputs != nullptr && entry->updates_inputs(ops::NodeView(graph, node)) != 0) return false;
  for (ValueId output : node.outputs) {
    const ir::Value& value = graph.value(output);
    if (value.batch != ir::BatchKind::kNone && ir::is_floating(value.type.dtype)) return false;
  }
  return true;
}

}  // namespace

Result<Graph> merge_identical_nodes(Graph graph, const PassContext& context) {
  IdMap<ValueId, ValueId> stands_for(graph.value_count());
  for (ValueId value : graph.value_ids()) stands_for[value] = value;
  std::map<std::tuple<std::string, std::vector<ValueId>, size_t>, std::vector<NodeId>> seen;
  for (NodeId id : graph.node_ids()) {
    Node& node = graph.node(id);
    for (ValueId& input : node.inputs)
      if (input.valid()) input = stands_for[input];
    if (!is_mergeable(graph, node)) continue;
    std::vector<NodeId>& same_inputs = seen[{node.op, node.inputs, node.outputs.size()}];
    NodeId twin;
    for (NodeId other : same_inputs)
      if (!twin.valid() && graph.node(other).attributes == node.attributes) twin = other;
    if (!twin.valid()) {
      same_inputs.push_back(id);
      continue;
    }
    Node& first = graph.node(twin);
    first.origins.insert(first.origins.end(), node.origins.begin(), node.origins.end());
    for (size_t i = 0; i < node.outputs.size(); ++i) stands_for[node.outputs[i]] = first.outputs[i];
  }
  for (ir::Output& output : graph.outputs()) output.value = stands_for[output.value];
  return drop_dead_nodes(std::move(graph), context);
}

}  // namespace graphpipe::passes
