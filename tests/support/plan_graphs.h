#pragma once
// Small plan graphs for tests: chains, diamonds and seeded random graphs with made-up prices.

#include <random>
#include <vector>

#include "ir/plan_graph.h"
#include "support/digraph.h"

namespace graphpipe::tests {

/// The successors of each node.
using SuccessorLists = std::vector<std::vector<size_t>>;

inline Dag dag_of(const SuccessorLists& graph) {
  EdgeList edges;
  for (size_t from = 0; from < graph.size(); ++from)
    for (const size_t to : graph[from]) edges.emplace_back(static_cast<uint32_t>(from), static_cast<uint32_t>(to));
  return Dag(graph.size(), std::move(edges));
}

/// A node of `seconds` forward per sample and twice that backward (half input, half weight gradient), one weight of
/// `weight_bytes`, one output of `bytes` per sample that its own backward keeps.
struct NodePrice {
  double seconds = 1;
  double bytes = 1;
  int64_t weight_bytes = 0;
};

inline ir::PlanNodeId add_plan_node(ir::PlanGraph& graph, const NodePrice& price,
                                    const std::vector<ir::PlanNodeId>& inputs) {
  using ir::SampleFunction;
  ir::PlanNode node;
  node.label = ModelText(text("node", graph.nodes.size()));
  node.forward = SampleFunction::polynomial(0, price.seconds);
  node.input_gradient = SampleFunction::polynomial(0, price.seconds);
  node.weight_gradient = SampleFunction::polynomial(0, price.seconds);
  if (price.weight_bytes > 0)
    node.weights.push_back(
        graph.weight_groups.push_back({.bytes = Bytes(price.weight_bytes), .trainable = true, .name = node.label}));
  const ir::PlanNodeId id = graph.nodes.push_back(std::move(node));
  ir::PlanValue value;
  value.producer = id;
  value.bytes = value.gradient_bytes = SampleFunction::polynomial(0, price.bytes);
  value.saved_by_input_gradient = {id};
  graph.values.push_back(std::move(value));
  for (ir::PlanNodeId input : inputs) {
    graph.values[ir::PlanValueId(input.index())].readers.push_back(id);
    graph.values[ir::PlanValueId(input.index())].gradient_readers.push_back(id);
  }
  return id;
}

/// One node per entry of `predecessors`; value i is made by node i.
inline ir::PlanGraph plan_graph(const std::vector<std::vector<size_t>>& predecessors,
                                const std::vector<NodePrice>& prices, Samples batch) {
  ir::PlanGraph graph;
  graph.batch = batch;
  for (size_t i = 0; i < predecessors.size(); ++i) {
    std::vector<ir::PlanNodeId> inputs;
    for (size_t p : predecessors[i]) inputs.push_back(ir::PlanNodeId(p));
    add_plan_node(graph, prices.size() == 1 ? prices.front() : prices[i], inputs);
  }
  return graph;
}

inline ir::PlanGraph chain_graph(size_t length, NodePrice price = {}, Samples batch = Samples(8)) {
  std::vector<std::vector<size_t>> predecessors(length);
  for (size_t i = 1; i < length; ++i) predecessors[i] = {i - 1};
  return plan_graph(predecessors, {price}, batch);
}

}  // namespace graphpipe::tests
