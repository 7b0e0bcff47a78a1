#pragma once
// More plan graphs: the shapes that papers draw, and seeded random ones. Equal seeds give equal graphs everywhere.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/support/dice.h"
#include "tests/support/plan_graphs.h"

namespace graphpipe::tests {

/// 0 -> {1, 2} -> 3.
inline ir::PlanGraph diamond_graph(NodePrice price = {}, Samples batch = Samples(8)) {
  return plan_graph({{}, {0}, {0}, {1, 2}}, {price}, batch);
}

/// Two chains of `length` nodes that meet in one node, as in an image-text model.
inline ir::PlanGraph two_branches_graph(size_t length, NodePrice price = {}, Samples batch = Samples(8)) {
  std::vector<std::vector<size_t>> predecessors(2 * length + 1);
  for (size_t i = 1; i < length; ++i) {
    predecessors[i] = {i - 1};
    predecessors[length + i] = {length + i - 1};
  }
  if (length > 0) predecessors.back() = {length - 1, 2 * length - 1};
  return plan_graph(predecessors, {price}, batch);
}

/// Whole prices from 1 up: sums of them are exact, so that equal plans have equal costs to the bit.
inline std::vector<NodePrice> random_prices(Dice& dice, size_t nodes) {
  std::vector<NodePrice> prices;
  for (size_t i = 0; i < nodes; ++i)
    prices.push_back({.seconds = static_cast<double>(1 + dice.below(9)),
                      .bytes = static_cast<double>(1 + dice.below(9)),
                      .weight_bytes = static_cast<int64_t>(dice.below(9))});
  return prices;
}

/// Predecessor lists of a connected series-parallel DAG with one source and one sink, in topological order: grown from
/// an edge by putting a node on an edge (series) or doubling a path beside it (parallel).
inline std::vector<std::vector<size_t>> random_sp_edges(Dice& dice, size_t nodes) {
  struct Edge {
    size_t from, to;
  };
  if (nodes < 2) return std::vector<std::vector<size_t>>(nodes);
  std::vector<Edge> edges = {{0, 1}};
  for (size_t made = 2; made < nodes; ++made) {
    const size_t chosen = dice.below(edges.size());
    const Edge edge = edges[chosen];
    // A node on the edge, or on a path of its own beside it.
    if (dice.below(2) == 0) edges[chosen] = {edge.from, made};
    else edges.push_back({edge.from, made});
    edges.push_back({made, edge.to});
  }
  // Number the nodes in topological order: the sink was made second.
  std::vector<size_t> missing(nodes), number(nodes);
  for (const Edge& edge : edges) ++missing[edge.to];
  std::vector<size_t> ready = {0};
  for (size_t next = 0; !ready.empty(); ++next) {
    const size_t node = ready.front();
    ready.erase(ready.begin());
    number[node] = next;
    for (const Edge& edge : edges)
      if (edge.from == node && --missing[edge.to] == 0) ready.push_back(edge.to);
  }
  std::vector<std::vector<size_t>> predecessors(nodes);
  for (const Edge& edge : edges) predecessors[number[edge.to]].push_back(number[edge.from]);
  for (auto& list : predecessors) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return predecessors;
}

inline ir::PlanGraph random_sp_graph(uint64_t seed, size_t nodes, Samples batch = Samples(8)) {
  Dice dice(seed);
  const auto predecessors = random_sp_edges(dice, nodes);
  return plan_graph(predecessors, random_prices(dice, nodes), batch);
}

/// Any DAG: each node reads up to `max_inputs` earlier ones; several sources and sinks, not always connected.
inline ir::PlanGraph random_dag(uint64_t seed, size_t nodes, size_t max_inputs = 3, Samples batch = Samples(8)) {
  Dice dice(seed);
  std::vector<std::vector<size_t>> predecessors(nodes);
  for (size_t i = 1; i < nodes; ++i) {
    for (size_t inputs = dice.below(max_inputs + 1); inputs > 0; --inputs) predecessors[i].push_back(dice.below(i));
    std::sort(predecessors[i].begin(), predecessors[i].end());
    predecessors[i].erase(std::unique(predecessors[i].begin(), predecessors[i].end()), predecessors[i].end());
  }
  return plan_graph(predecessors, random_prices(dice, nodes), batch);
}

/// One or two nodes work on the whole batch, and every item costs something to start, so that its size matters.
inline ir::PlanGraph with_batch_nodes(ir::PlanGraph graph, uint64_t seed) {
  Dice dice(seed + 77);
  for (ir::PlanNode& node : graph.nodes)
    node.forward += ir::SampleFunction::polynomial(static_cast<double>(1 + dice.below(4)), 0);
  for (size_t count = 1 + dice.below(2); count > 0; --count) {
    ir::PlanNode& node = graph.nodes[ir::PlanNodeId(dice.below(graph.nodes.size()))];
    node.scope = ir::SampleScope::kBatch;
    node.fewest_samples = 2;
  }
  return graph;
}

}  // namespace graphpipe::tests
