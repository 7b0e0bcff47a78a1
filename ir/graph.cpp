#include "ir/graph.h"

#include <utility>

namespace graphpipe::ir {

NodeId Graph::add_node(Node node, std::vector<Value> outputs) {
  for (ValueId input : node.inputs) GP_CHECK(!input.valid() || input.index() < values_.size());
  const NodeId id(nodes_.size());
  node.outputs.clear();
  for (Value& output : outputs) {
    output.producer = id;
    node.outputs.push_back(values_.push_back(std::move(output)));
  }
  return nodes_.push_back(std::move(node));
}

NodeId Graph::add_node(Node node) {
  const NodeId id(nodes_.size());
  for (ValueId output : node.outputs) {
    GP_CHECK(!values_[output].producer.valid());
    values_[output].producer = id;
  }
  return nodes_.push_back(std::move(node));
}

ValueId Graph::add_value(Value value) {
  value.producer = NodeId();
  return values_.push_back(std::move(value));
}

ParamId Graph::add_param(Param param, Value value) {
  param.value = add_value(std::move(value));
  return params_.push_back(std::move(param));
}

ParamId Graph::add_param(Param param) {
  GP_CHECK(param.value.index() < values_.size());
  return params_.push_back(std::move(param));
}

ValueId Graph::add_input(Input input, Value value) {
  input.value = add_value(std::move(value));
  inputs_.push_back(std::move(input));
  return inputs_.back().value;
}

IdMap<ValueId, std::vector<NodeId>> readers_of_values(const Graph& graph) {
  IdMap<ValueId, std::vector<NodeId>> readers(graph.value_count());
  for (NodeId node : graph.node_ids())
    for (ValueId input : graph.node(node).inputs)
      if (input.valid() && (readers[input].empty() || readers[input].back() != node)) readers[input].push_back(node);
  return readers;
}

IdMap<ValueId, ParamId> params_of_values(const Graph& graph) {
  IdMap<ValueId, ParamId> params(graph.value_count());
  for (ParamId param : graph.param_ids()) params[graph.param(param).value] = param;
  return params;
}

bool joins_samples(const Graph& graph, const Output& output) {
  const Value& value = graph.value(output.value);
  return output.role == OutputRole::kModel && value.batch == BatchKind::kAxis && value.producer.valid();
}

}  // namespace graphpipe::ir
