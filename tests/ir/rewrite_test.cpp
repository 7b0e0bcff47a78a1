#include "ir/rewrite.h"

#include <doctest/doctest.h>

#include "ir/graph_text.h"
#include "ir/verify_graph.h"
#include "tests/support/random_graph.h"

namespace graphpipe::ir {
namespace {

Graph parsed(std::string_view lines) {
  Result<Graph> graph = parse_graph("graphpipe.graph/1\n" + std::string(lines));
  REQUIRE(graph.ok());
  return std::move(graph).value();
}

TEST_CASE("keeping the needed nodes gives a sound graph with the same ends, and keeping them again changes nothing") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const Graph graph = tests::random_graph(seed);
    const Graph kept = keep_nodes(graph, nodes_needed(graph));
    REQUIRE(verify_graph(kept).ok());
    CHECK(kept.inputs().size() == graph.inputs().size());
    CHECK(kept.outputs().size() == graph.outputs().size());
    CHECK(kept.gradient_shares().size() <= graph.gradient_shares().size());
    CHECK(keep_nodes(kept, nodes_needed(kept)) == kept);
  }
}

TEST_CASE("keeping every node changes nothing but unread parameters") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const Graph graph = tests::random_graph(seed);
    IdSet<NodeId> all(graph.node_count());
    for (NodeId id : graph.node_ids()) all.insert(id);
    const Graph kept = keep_nodes(graph, all);
    CHECK(kept.node_count() == graph.node_count());
    if (kept.param_count() == graph.param_count()) CHECK(kept == graph);
  }
}

TEST_CASE("dead nodes and the parameters that only they read disappear, ids close up") {
  const Graph graph = parsed(
      "i0  %0 = data \"x\" : f32[B]\n"
      "p0  %w1 = weight \"unused\" filled(0.0) : f32[]\n"
      "p1  %w2 = weight trainable \"used\" filled(0.0) : f32[]\n"
      "n0  %3 = Add(%0, %w1) : f32[B]\n"
      "n1  %4 = Add(%0, %w2) : f32[B]\n"
      "n2  %5 = Grad(%4) : f32[] phase W serves n1\n"
      "out model \"y\" %4\n"
      "gradients 5\n"
      "gradient %2 = %5\n"
      "share p1 %5\n");
  const Graph kept = keep_nodes(graph, nodes_needed(graph));
  CHECK(print_graph(kept) ==
        "graphpipe.graph/1\n"
        "i0  %0 = data \"x\" : f32[B]\n"
        "p0  %w1 = weight trainable \"used\" filled(0.0) : f32[]\n"
        "n0  %2 = Add(%0, %w1) : f32[B]\n"
        "n1  %3 = Grad(%2) : f32[] phase W serves n0\n"
        "out model \"y\" %2\n"
        "gradients 3\n"
        "gradient %w1 = %3\n"
        "share p0 %3\n");
}

TEST_CASE("a gradient node keeps the forward node that it serves") {
  const Graph graph = parsed(
      "i0  %0 = data \"x\" : f32[B]\n"
      "n0  %1 = Relu(%0) : f32[B]\n"
      "n1  %2 = ReluGrad(%0, %0) : f32[B] phase I serves n0\n");
  const std::vector<ValueId> wanted = {ValueId(2)};
  const IdSet<NodeId> live = ancestors_of(graph, wanted);
  CHECK(live.contains(NodeId(0)));
  CHECK(live.contains(NodeId(1)));
}

}  // namespace
}  // namespace graphpipe::ir
