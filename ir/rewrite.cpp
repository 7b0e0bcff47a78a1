#include "ir/rewrite.h"

#include <algorithm>

#include "support/digraph.h"

namespace graphpipe::ir {
namespace {

// Calls `visit` with every node that `node` reads from or names.
template <typename Visit>
void for_each_needed(const Graph& graph, NodeId id, Visit visit) {
  const Node& node = graph.node(id);
  const auto visit_producer = [&](ValueId value) {
    if (value.valid() && graph.value(value).producer.valid()) visit(graph.value(value).producer);
  };
  for (ValueId input : node.inputs) visit_producer(input);
  visit_producer(node.sums_gradient_of);
  if (node.serves.valid()) visit(node.serves);
}

// Old ids to new ones; invalid where dropped.
struct Renumbering {
  IdMap<NodeId, NodeId> node;
  IdMap<ValueId, ValueId> value;
  IdMap<ParamId, ParamId> param;

  explicit Renumbering(const Graph& graph)
      : node(graph.node_count()), value(graph.value_count()), param(graph.param_count()) {}
  ValueId of(ValueId old) const { return old.valid() ? value[old] : ValueId(); }
};

void copy_params(const Graph& graph, Renumbering& renumbered, Graph& out) {
  for (ParamId id : graph.param_ids()) {
    Param param = graph.param(id);
    param.value = renumbered.of(param.value);
    if (param.value.valid()) renumbered.param[id] = out.add_param(std::move(param));
  }
}

void copy_nodes(const Graph& graph, const std::vector<NodeId>& order, Renumbering& renumbered, Graph& out) {
  for (size_t i = 0; i < order.size(); ++i) renumbered.node[order[i]] = NodeId(i);
  for (NodeId id : order) {
    Node node = graph.node(id);
    for (ValueId& input : node.inputs) {
      const bool present = input.valid();
      input = renumbered.of(input);
      GP_CHECK(input.valid() == present);
    }
    for (ValueId& output : node.outputs) output = renumbered.of(output);
    node.sums_gradient_of = renumbered.of(node.sums_gradient_of);
    if (node.serves.valid()) {
      node.serves = renumbered.node[node.serves];
      GP_CHECK(node.serves.valid());
    }
    out.add_node(std::move(node));
  }
}

void copy_ends(const Graph& graph, const Renumbering& renumbered, Graph& out) {
  for (Input input : graph.inputs()) {
    input.value = renumbered.of(input.value);
    out.inputs().push_back(std::move(input));
  }
  for (Output output : graph.outputs()) {
    output.value = renumbered.of(output.value);
    GP_CHECK(output.value.valid());
    out.outputs().push_back(std::move(output));
  }
  out.loss() = graph.loss();
}

void copy_gradients(const Graph& graph, const Renumbering& renumbered, Graph& out) {
  const IdMap<ValueId, ValueId>& gradient_of = graph.gradient_of();
  if (!gradient_of.empty()) {
    size_t size = 0;
    for (ValueId id : ids<ValueId>(gradient_of.size()))
      if (renumbered.of(id).valid()) size = renumbered.of(id).index() + 1;
    out.gradient_of().resize(size);
  }
  for (ValueId id : ids<ValueId>(gradient_of.size()))
    if (renumbered.of(id).valid()) out.gradient_of()[renumbered.of(id)] = renumbered.of(gradient_of[id]);
  for (const GradientShare& share : graph.gradient_shares())
    if (renumbered.param[share.param].valid() && renumbered.of(share.value).valid())
      out.gradient_shares().push_back({renumbered.param[share.param], renumbered.of(share.value)});
}

// The graph with these nodes in this order and these values in the order of their ids.
Graph rebuilt(const Graph& graph, const std::vector<NodeId>& order, const IdSet<ValueId>& kept) {
  Renumbering renumbered(graph);
  Graph out;
  for (ValueId id : graph.value_ids())
    if (kept.contains(id)) renumbered.value[id] = out.add_value(graph.value(id));
  copy_params(graph, renumbered, out);
  copy_nodes(graph, order, renumbered, out);
  copy_ends(graph, renumbered, out);
  copy_gradients(graph, renumbered, out);
  return out;
}

// Values of live nodes, of inputs, of parameters that are read, put out or have a gradient, and those with no source at
// all.
IdSet<ValueId> values_to_keep(const Graph& graph, const std::vector<NodeId>& order) {
  IdSet<ValueId> kept(graph.value_count());
  IdSet<ValueId> read(graph.value_count());
  for (NodeId id : order) {
    for (ValueId output : graph.node(id).outputs) kept.insert(output);
    for (ValueId input : graph.node(id).inputs)
      if (input.valid()) read.insert(input);
    if (graph.node(id).sums_gradient_of.valid()) read.insert(graph.node(id).sums_gradient_of);
  }
  for (const Output& output : graph.outputs()) read.insert(output.value);
  for (const GradientShare& share : graph.gradient_shares()) read.insert(graph.param(share.param).value);
  const IdMap<ValueId, ParamId> params = params_of_values(graph);
  for (ValueId id : graph.value_ids())
    if (!graph.value(id).producer.valid() && (!params[id].valid() || read.contains(id))) kept.insert(id);
  return kept;
}

}  // namespace

IdSet<NodeId> ancestors_of(const Graph& graph, std::span<const ValueId> values) {
  std::vector<NodeId> producers;
  for (ValueId value : values)
    if (value.valid() && graph.value(value).producer.valid()) producers.push_back(graph.value(value).producer);
  IdSet<NodeId> found(graph.node_count());
  const auto needed = [&](NodeId node, auto visit) { for_each_needed(graph, node, visit); };
  for (const NodeId node : reached_from(producers, needed)) found.insert(node);
  return found;
}

IdSet<NodeId> nodes_needed(const Graph& graph) {
  std::vector<ValueId> ends;
  for (const Output& output : graph.outputs()) ends.push_back(output.value);
  for (const GradientShare& share : graph.gradient_shares()) ends.push_back(share.value);
  return ancestors_of(graph, ends);
}

Graph keep_nodes(const Graph& graph, const IdSet<NodeId>& live) {
  std::vector<NodeId> order;
  for (NodeId id : graph.node_ids())
    if (live.contains(id)) order.push_back(id);
  return rebuilt(graph, order, values_to_keep(graph, order));
}

}  // namespace graphpipe::ir
