#pragma once
// Our graphs as Boost.Graph sees them, so that its algorithms run on them (strong components, dominators, transitive
// reduction, flows). Vertex i is node i; an edge stands for a node that reads what another makes, once per pair.
//
// Includes Boost.Graph, which costs seconds of compile time: only .cpp files include it.

#include <algorithm>
#include <boost/graph/graph_traits.hpp>
#include <boost/graph/properties.hpp>
#include <boost/iterator/counting_iterator.hpp>
#include <boost/property_map/property_map.hpp>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/plan_graph.h"
#include "support/check.h"

namespace graphpipe::ir {

/// The edges of a directed graph in both directions, fixed once built. Models Boost's VertexListGraph, EdgeListGraph,
/// BidirectionalGraph and AdjacencyGraph. Edges are numbered by (source, target).
class Digraph {
 public:
  struct Edge {
    size_t source = 0;
    size_t target = 0;
    auto operator<=>(const Edge&) const = default;
  };

  /// Edges may stand in any order and more than once. Needs: ends below `vertex_count`.
  Digraph(size_t vertex_count, std::vector<Edge> edges);

  size_t vertex_count() const { return first_out_.size() - 1; }
  const std::vector<Edge>& edges() const { return edges_; }
  /// The edges of a vertex are numbered from first_out(v) up to first_out(v + 1).
  size_t first_out(size_t vertex) const { return first_out_[vertex]; }
  /// Numbers of the edges that end in the vertex, ascending.
  const std::vector<size_t>& in_edges(size_t vertex) const { return in_edges_[vertex]; }

 private:
  std::vector<Edge> edges_;
  std::vector<size_t> first_out_;
  std::vector<std::vector<size_t>> in_edges_;
};

inline Digraph::Digraph(size_t vertex_count, std::vector<Edge> edges)
    : edges_(std::move(edges)), first_out_(vertex_count + 1), in_edges_(vertex_count) {
  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  for (size_t i = 0; i < edges_.size(); ++i) {
    GP_CHECK(edges_[i].source < vertex_count && edges_[i].target < vertex_count);
    ++first_out_[edges_[i].source + 1];
    in_edges_[edges_[i].target].push_back(i);
  }
  for (size_t v = 0; v < vertex_count; ++v) first_out_[v + 1] += first_out_[v];
}

/// Node i of the graph is vertex i.
inline Digraph digraph_of(const Graph& graph) {
  std::vector<Digraph::Edge> edges;
  for (NodeId node : graph.node_ids())
    for (ValueId input : graph.node(node).inputs)
      if (input.valid() && graph.value(input).producer.valid())
        edges.push_back({graph.value(input).producer.index(), node.index()});
  return {graph.node_count(), std::move(edges)};
}

inline Digraph digraph_of(const PlanGraph& graph) {
  std::vector<Digraph::Edge> edges;
  for (const PlanValue& value : graph.values)
    for (PlanNodeId reader : value.readers) edges.push_back({value.producer.index(), reader.index()});
  return {graph.nodes.size(), std::move(edges)};
}

// What follows are the names that Boost.Graph asks for, found by the type of their argument.

using DigraphVertices = boost::counting_iterator<size_t>;
using DigraphEdges = boost::counting_iterator<size_t>;

inline std::pair<DigraphVertices, DigraphVertices> vertices(const Digraph& graph) {
  return {DigraphVertices(0), DigraphVertices(graph.vertex_count())};
}
inline size_t num_vertices(const Digraph& graph) { return graph.vertex_count(); }
inline std::pair<DigraphEdges, DigraphEdges> edges(const Digraph& graph) {
  return {DigraphEdges(0), DigraphEdges(graph.edges().size())};
}
inline size_t num_edges(const Digraph& graph) { return graph.edges().size(); }
inline size_t source(size_t edge, const Digraph& graph) { return graph.edges()[edge].source; }
inline size_t target(size_t edge, const Digraph& graph) { return graph.edges()[edge].target; }

inline std::pair<DigraphEdges, DigraphEdges> out_edges(size_t vertex, const Digraph& graph) {
  return {DigraphEdges(graph.first_out(vertex)), DigraphEdges(graph.first_out(vertex + 1))};
}
inline size_t out_degree(size_t vertex, const Digraph& graph) {
  return graph.first_out(vertex + 1) - graph.first_out(vertex);
}
inline std::pair<const size_t*, const size_t*> in_edges(size_t vertex, const Digraph& graph) {
  const std::vector<size_t>& list = graph.in_edges(vertex);
  return {list.data(), list.data() + list.size()};
}
inline size_t in_degree(size_t vertex, const Digraph& graph) { return graph.in_edges(vertex).size(); }
inline size_t degree(size_t vertex, const Digraph& graph) {
  return in_degree(vertex, graph) + out_degree(vertex, graph);
}

/// Walks the targets of a vertex's edges.
class DigraphNeighbours {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = size_t;
  using difference_type = std::ptrdiff_t;
  using pointer = const size_t*;
  using reference = const size_t&;

  DigraphNeighbours() = default;
  explicit DigraphNeighbours(const Digraph::Edge* edge) : edge_(edge) {}
  reference operator*() const { return edge_->target; }
  DigraphNeighbours& operator++() {
    ++edge_;
    return *this;
  }
  DigraphNeighbours operator++(int) {
    DigraphNeighbours before = *this;
    ++edge_;
    return before;
  }
  bool operator==(const DigraphNeighbours&) const = default;

 private:
  const Digraph::Edge* edge_ = nullptr;
};
inline std::pair<DigraphNeighbours, DigraphNeighbours> adjacent_vertices(size_t vertex, const Digraph& graph) {
  const Digraph::Edge* edges = graph.edges().data();
  return {DigraphNeighbours(edges + graph.first_out(vertex)), DigraphNeighbours(edges + graph.first_out(vertex + 1))};
}

inline boost::typed_identity_property_map<size_t> get(boost::vertex_index_t, const Digraph&) { return {}; }
inline size_t get(boost::vertex_index_t, const Digraph&, size_t vertex) { return vertex; }
inline boost::typed_identity_property_map<size_t> get(boost::edge_index_t, const Digraph&) { return {}; }

}  // namespace graphpipe::ir

template <>
struct boost::graph_traits<graphpipe::ir::Digraph> {
  struct traversal_category : boost::vertex_list_graph_tag,
                              boost::edge_list_graph_tag,
                              boost::bidirectional_graph_tag,
                              boost::adjacency_graph_tag {};
  using vertex_descriptor = size_t;
  using edge_descriptor = size_t;
  using directed_category = boost::bidirectional_tag;
  using edge_parallel_category = boost::disallow_parallel_edge_tag;
  using vertices_size_type = size_t;
  using edges_size_type = size_t;
  using degree_size_type = size_t;
  using vertex_iterator = graphpipe::ir::DigraphVertices;
  using edge_iterator = graphpipe::ir::DigraphEdges;
  using out_edge_iterator = graphpipe::ir::DigraphEdges;
  using in_edge_iterator = const size_t*;
  using adjacency_iterator = graphpipe::ir::DigraphNeighbours;
  static vertex_descriptor null_vertex() { return static_cast<size_t>(-1); }
};

template <>
struct boost::property_map<graphpipe::ir::Digraph, boost::vertex_index_t> {
  using type = boost::typed_identity_property_map<size_t>;
  using const_type = type;
};
template <>
struct boost::property_map<graphpipe::ir::Digraph, boost::edge_index_t> {
  using type = boost::typed_identity_property_map<size_t>;
  using const_type = type;
};
