#include "cost/fold.h"

#include <doctest/doctest.h>

#include "ir/stage_graph.h"

using namespace graphpipe;
using ir::PlanNodeId;
using ir::StageId;

namespace {

ir::SampleFunction per_sample(double value) { return ir::SampleFunction::polynomial(0, value); }

// Three forward nodes in a chain and their backward halves, whose edges run back as gradients do or are written along
// the forward ones, as the published layer graphs of dnn-partitioning have them.
ir::PlanGraph training_chain(bool along) {
  ir::PlanGraph graph;
  graph.batch = Samples(4);
  for (size_t i = 0; i < 6; ++i) {
    const bool backward = i >= 3;
    ir::PlanNode node;
    node.label = ModelText(std::to_string(i));
    node.forward = per_sample(backward ? 0 : 1);
    node.input_gradient = per_sample(backward ? 2 : 0);
    node.is_backward = backward;
    const PlanNodeId id = graph.nodes.push_back(std::move(node));
    graph.file_order.nodes.push_back(id);
    if (!backward) graph.colocated.push_back({id, PlanNodeId(3 + i)});
  }
  const auto add = [&](size_t from, size_t to) {
    graph.values.push_back({.producer = PlanNodeId(from), .readers = {PlanNodeId(to)}, .bytes = per_sample(8)});
  };
  for (size_t i = 0; i < 2; ++i) {
    add(i, i + 1);
    add(along ? 3 + i : 4 + i, along ? 4 + i : 3 + i);
  }
  return graph;
}

}  // namespace

TEST_CASE("backward halves follow their sets in whichever direction a file writes their edges") {
  for (const bool along : {false, true}) {
    CAPTURE(along);
    const cost::FoldedGraph folded = cost::fold_backward(training_chain(along));
    REQUIRE(folded.graph.nodes.size() == 3);
    CHECK(ir::verify_plan_graph(folded.graph).ok());
    ir::Assignment plan;
    for (size_t i = 0; i < 6; ++i) plan.stage_of.push_back(StageId(i % 3));
    for (size_t i = 0; i < 3; ++i) plan.choice.push_back({.devices = {ir::DeviceId(i)}});
    auto small = cost::fold(folded, plan);
    REQUIRE(small.ok());
    CHECK(cost::unfold(folded, *small) == plan);
    const auto stages = ir::build_stage_graph(folded.graph, *small);
    REQUIRE(stages.ok());
    for (const ir::Stage& stage : stages->stages) {
      CHECK(stage.has_backward);
      CHECK(stage.forward.at(1.0) == 1);
      CHECK(stage.input_gradient.at(1.0) == 2);
    }
    REQUIRE(stages->edges.size() == 2);
    for (const ir::StageEdge& edge : stages->edges) {
      CHECK(edge.bytes.at(1.0) == 8);
      CHECK(edge.gradient_bytes.at(1.0) == 8);
    }
  }
}

TEST_CASE("nodes of one set cannot be in two stages") {
  const cost::FoldedGraph folded = cost::fold_backward(training_chain(false));
  ir::Assignment plan;
  for (size_t i = 0; i < 6; ++i) plan.stage_of.push_back(StageId(i / 3));
  for (size_t i = 0; i < 2; ++i) plan.choice.push_back({.devices = {ir::DeviceId(i)}});
  CHECK_FALSE(cost::fold(folded, plan).ok());
}

TEST_CASE("sets on a cycle become one node, numbered by the order of the file") {
  ir::PlanGraph graph;
  for (size_t i = 0; i < 4; ++i) graph.nodes.push_back({{.forward = per_sample(1)}});
  for (size_t i = 0; i < 3; ++i)
    graph.values.push_back({.producer = PlanNodeId(i), .readers = {PlanNodeId(i + 1)}, .bytes = per_sample(1)});
  graph.file_order.nodes = {PlanNodeId(3), PlanNodeId(0), PlanNodeId(1), PlanNodeId(2)};
  graph.colocated = {{PlanNodeId(0), PlanNodeId(2)}};
  const cost::FoldedGraph folded = cost::fold_backward(graph);
  REQUIRE(folded.graph.nodes.size() == 2);
  for (size_t i = 0; i < 3; ++i) CHECK(folded.node_of[PlanNodeId(i)] == PlanNodeId(0));
  CHECK(folded.node_of[PlanNodeId(3)] == PlanNodeId(1));
  CHECK(folded.graph.nodes[PlanNodeId(0)].forward.at(1.0) == 3);
}

TEST_CASE("a stage of a tensor-parallel degree pays its collectives where its edges are cut, and only there") {
  ir::PlanGraph graph;
  for (size_t i = 0; i < 3; ++i) {
    ir::NodeAlternative way{.degree = 2, .seconds = {per_sample(1), per_sample(2), {}}};
    if (i > 0) way.from = {{PlanNodeId(i - 1), 40}};
    if (i < 2) way.to = {{PlanNodeId(i + 1), 20}};
    ir::PlanNode node{{.forward = per_sample(9)}};
    node.alternatives = {{.degree = 1}, way};
    graph.nodes.push_back(std::move(node));
    if (i > 0)
      graph.values.push_back({.producer = PlanNodeId(i - 1), .readers = {PlanNodeId(i)}, .bytes = per_sample(8)});
  }
  ir::Assignment plan;
  for (size_t i = 0; i < 3; ++i) plan.stage_of.push_back(StageId(i / 2));
  for (size_t s = 0; s < 2; ++s) plan.choice.push_back({.devices = {ir::DeviceId(2 * s)}, .degree = 2});
  CHECK(cost::with_alternatives(graph, plan, 10) == graph);
  plan.alternative.resize(3, 1);
  const ir::PlanGraph priced = cost::with_alternatives(graph, plan, 10);
  const auto forward = [&](size_t node) { return priced.nodes[PlanNodeId(node)].forward.at(1.0); };
  const auto backward = [&](size_t node) { return priced.nodes[PlanNodeId(node)].input_gradient.at(1.0); };
  CHECK(forward(0) == doctest::Approx(1));
  CHECK(forward(1) == doctest::Approx(1 + 2));  // 20 bytes on the way to node 2
  CHECK(forward(2) == doctest::Approx(1 + 4));  // 40 bytes on the way from node 1
  CHECK(backward(2) == doctest::Approx(2 + 4));
}
