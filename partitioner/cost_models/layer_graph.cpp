#include "partitioner/cost_models/layer_graph.h"

#include "support/digraph.h"

namespace graphpipe::partitioner {

LayerAdjacency adjacency_of(const LayerGraph& graph) {
  LayerAdjacency out;
  out.predecessors.resize(graph.layers.size());
  out.successors.resize(graph.layers.size());
  EdgeList edges;
  for (const LayerEdge& edge : graph.edges) {
    out.predecessors[edge.to].push_back(edge.from);
    out.successors[edge.from].push_back(edge.to);
    edges.emplace_back(static_cast<uint32_t>(edge.from.index()), static_cast<uint32_t>(edge.to.index()));
  }
  for (const uint32_t layer : topological_order(graph.layers.size(), edges)) out.order.emplace_back(layer);
  return out;
}

}  // namespace graphpipe::partitioner
