#include "ir/plan_graph.h"

#include <doctest/doctest.h>

#include "tests/support/plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::ir;

TEST_CASE("adjacency lists each neighbour once, ascending") {
  const PlanGraph graph = tests::plan_graph({{}, {0}, {0}, {1, 2}}, {{}}, Samples(4));
  const PlanAdjacency adjacency = adjacency_of(graph);
  CHECK(adjacency.successors[PlanNodeId(0u)] == std::vector{PlanNodeId(1u), PlanNodeId(2u)});
  CHECK(adjacency.predecessors[PlanNodeId(3u)] == graph.predecessors(PlanNodeId(3u)));
  CHECK(adjacency.successors[PlanNodeId(1u)] == graph.successors(PlanNodeId(1u)));
}

TEST_CASE("a sound graph passes the verifier, and every broken promise is reported") {
  const PlanGraph sound = tests::chain_graph(3, {.seconds = 1, .bytes = 4, .weight_bytes = 8});
  REQUIRE(verify_plan_graph(sound).ok());
  const auto broken = [&](auto&& change) {
    PlanGraph graph = sound;
    change(graph);
    return !verify_plan_graph(graph).ok();
  };
  CHECK(broken([](PlanGraph& g) { g.batch = Samples(0); }));
  CHECK(broken([](PlanGraph& g) { g.values[PlanValueId(1u)].readers = {PlanNodeId(0u)}; }));
  CHECK(broken([](PlanGraph& g) { g.values[PlanValueId(0u)].readers = {PlanNodeId(2u), PlanNodeId(1u)}; }));
  CHECK(broken([](PlanGraph& g) { g.values[PlanValueId(0u)].readers = {PlanNodeId(9u)}; }));
  CHECK(broken([](PlanGraph& g) { g.values[PlanValueId(0u)].producer = PlanNodeId(); }));
  CHECK(broken([](PlanGraph& g) { g.values[PlanValueId(0u)].gradient_readers = {PlanNodeId(2u)}; }));
  CHECK(broken([](PlanGraph& g) { g.nodes[PlanNodeId(0u)].forward = SampleFunction::polynomial(-1, 0); }));
  CHECK(broken([](PlanGraph& g) { g.nodes[PlanNodeId(0u)].weights = {WeightGroupId(5u)}; }));
  CHECK(broken([](PlanGraph& g) { g.weight_groups[WeightGroupId(0u)].bytes = Bytes(-1); }));
  CHECK(broken([](PlanGraph& g) { g.colocated = {{PlanNodeId(4u)}}; }));
  CHECK(broken([](PlanGraph& g) { g.optimizer_state_per_weight_byte = -1; }));
}
