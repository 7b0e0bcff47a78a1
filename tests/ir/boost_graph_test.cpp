#include "ir/boost_graph.h"

#include <doctest/doctest.h>

#include <boost/graph/dominator_tree.hpp>
#include <boost/graph/graph_concepts.hpp>
#include <boost/graph/strong_components.hpp>
#include <boost/graph/topological_sort.hpp>

#include "tests/support/random_graph.h"
#include "tests/support/random_plan_graphs.h"

namespace graphpipe::ir {
namespace {

BOOST_CONCEPT_ASSERT((boost::VertexListGraphConcept<Digraph>));
BOOST_CONCEPT_ASSERT((boost::EdgeListGraphConcept<Digraph>));
BOOST_CONCEPT_ASSERT((boost::BidirectionalGraphConcept<Digraph>));
BOOST_CONCEPT_ASSERT((boost::AdjacencyGraphConcept<Digraph>));

TEST_CASE("the adaptor shows the edges of the operator graph, each once, from both ends") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const Graph graph = tests::random_graph(seed);
    const Digraph digraph = digraph_of(graph);
    REQUIRE(num_vertices(digraph) == graph.node_count());
    size_t seen = 0;
    for (NodeId node : graph.node_ids()) {
      IdSet<NodeId> producers(graph.node_count());
      for (ValueId input : graph.node(node).inputs)
        if (input.valid() && graph.value(input).producer.valid()) producers.insert(graph.value(input).producer);
      const auto [first, last] = in_edges(node.index(), digraph);
      for (const size_t* edge = first; edge != last; ++edge) {
        CHECK(target(*edge, digraph) == node.index());
        CHECK(producers.contains(NodeId(source(*edge, digraph))));
        producers.erase(NodeId(source(*edge, digraph)));
        ++seen;
      }
      CHECK(producers == IdSet<NodeId>(graph.node_count()));
      const auto [near, end] = adjacent_vertices(node.index(), digraph);
      CHECK(static_cast<size_t>(std::distance(near, end)) == out_degree(node.index(), digraph));
    }
    CHECK(seen == num_edges(digraph));
  }
}

TEST_CASE("Boost sorts an operator graph topologically and finds no cycle in it") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const Digraph digraph = digraph_of(tests::random_graph(seed));
    std::vector<size_t> reversed;
    boost::topological_sort(digraph, std::back_inserter(reversed));
    std::vector<size_t> position(reversed.size());
    for (size_t i = 0; i < reversed.size(); ++i) position[reversed[i]] = reversed.size() - i;
    for (const Digraph::Edge& edge : digraph.edges()) CHECK(position[edge.source] < position[edge.target]);

    std::vector<size_t> component(num_vertices(digraph));
    const auto components = boost::strong_components(
        digraph, boost::make_iterator_property_map(component.begin(), get(boost::vertex_index, digraph)));
    CHECK(components == num_vertices(digraph));
  }
}

TEST_CASE("Boost finds the cycle in a graph that has one") {
  const Digraph digraph(4, {{0, 1}, {1, 2}, {2, 1}, {2, 3}, {0, 1}});
  CHECK(num_edges(digraph) == 4);
  std::vector<size_t> component(4);
  const auto components = boost::strong_components(
      digraph, boost::make_iterator_property_map(component.begin(), get(boost::vertex_index, digraph)));
  CHECK(components == 3);
  CHECK(component[1] == component[2]);
}

TEST_CASE("in a series-parallel plan graph with one source, the sink is dominated by the source") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    const PlanGraph graph = tests::random_sp_graph(seed, 12);
    const Digraph digraph = digraph_of(graph);
    REQUIRE(num_vertices(digraph) == 12);
    for (PlanNodeId node : graph.node_ids()) {
      CHECK((in_degree(node.index(), digraph) == 0) == (node.index() == 0));
      CHECK((out_degree(node.index(), digraph) == 0) == (node.index() == 11));
    }
    std::vector<size_t> dominator(12, boost::graph_traits<Digraph>::null_vertex());
    boost::lengauer_tarjan_dominator_tree(
        digraph, size_t{0}, boost::make_iterator_property_map(dominator.begin(), get(boost::vertex_index, digraph)));
    size_t up = 11;
    for (int steps = 0; up != 0 && steps < 12; ++steps) up = dominator[up];
    CHECK(up == 0);
  }
}

TEST_CASE("random plan graphs are sound, and the same for the same seed") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    CHECK(tests::random_dag(seed, 15) == tests::random_dag(seed, 15));
    CHECK_FALSE(tests::random_dag(seed, 15) == tests::random_dag(seed + 1, 15));
    for (const PlanGraph& graph : {tests::random_dag(seed, 15), tests::random_sp_graph(seed, 15)}) {
      const Digraph digraph = digraph_of(graph);
      for (const Digraph::Edge& edge : digraph.edges()) CHECK(edge.source < edge.target);
    }
  }
  CHECK(num_edges(digraph_of(tests::diamond_graph())) == 4);
  CHECK(num_edges(digraph_of(tests::two_branches_graph(3))) == 6);
}

}  // namespace
}  // namespace graphpipe::ir
