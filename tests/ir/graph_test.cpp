#include "ir/graph.h"

#include <doctest/doctest.h>

namespace graphpipe::ir {
namespace {

Value vector_of(Dim dim) { return {.type = {DType::kFloat32, {dim}}}; }

TEST_CASE("ids are dense and every value knows its producer") {
  Graph graph;
  const ValueId x = graph.add_input({.name = ModelText("x")}, vector_of(Dim::batch()));
  const ParamId w = graph.add_param({.name = ModelText("w")}, vector_of(Dim::fixed(1)));
  const NodeId add = graph.add_node({.op = "Add", .inputs = {x, graph.param(w).value}}, {vector_of(Dim::batch())});
  const NodeId square = graph.add_node(
      {.op = "Mul", .inputs = {graph.node(add).outputs[0], graph.node(add).outputs[0]}}, {vector_of(Dim::batch())});
  CHECK(graph.node_count() == 2);
  CHECK(graph.value_count() == 4);
  CHECK_FALSE(graph.value(x).producer.valid());
  CHECK(graph.value(graph.node(square).outputs[0]).producer == square);

  const auto readers = readers_of_values(graph);
  CHECK(readers[x] == std::vector<NodeId>{add});
  CHECK(readers[graph.node(add).outputs[0]] == std::vector<NodeId>{square});
  CHECK(readers[graph.node(square).outputs[0]].empty());

  const auto params = params_of_values(graph);
  CHECK(params[graph.param(w).value] == w);
  CHECK_FALSE(params[x].valid());
}

}  // namespace
}  // namespace graphpipe::ir
