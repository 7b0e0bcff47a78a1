#include "cost/layer_conversion.h"

#include <doctest/doctest.h>

#include "ir/stage_graph.h"

using namespace graphpipe;
using ir::LayerId;

namespace {

// Three forward layers in a row and their backward halves, whose edges run back as gradients do or are written along
// the forward ones, as the published layer graphs of dnn-partitioning have them.
ir::LayerGraph training_chain(bool along) {
  ir::LayerGraph graph{.source = ir::LayerSource::kDnnPartitioning};
  for (size_t i = 0; i < 6; ++i) {
    const bool backward = i >= 3;
    graph.layers.push_back({.id = ModelText(std::to_string(i)),
                            .forward_seconds = backward ? 0.0 : 1.0,
                            .backward_seconds = backward ? 2.0 : 0.0,
                            .is_backward = backward,
                            .color_class = static_cast<int64_t>(i % 3)});
  }
  for (size_t i = 0; i < 2; ++i) {
    const LayerId near(3 + i), far(4 + i);
    graph.edges.push_back({.from = LayerId(i), .to = LayerId(i + 1), .bytes = 8});
    graph.edges.push_back({.from = along ? near : far, .to = along ? far : near, .bytes = 8});
  }
  return graph;
}

}  // namespace

TEST_CASE("backward layers follow their classes in whichever direction a file writes their edges") {
  for (const bool along : {false, true}) {
    CAPTURE(along);
    const ir::LayerGraph graph = training_chain(along);
    const cost::ConvertedLayers converted = cost::convert_layers(graph, Samples(4));
    REQUIRE(converted.graph.nodes.size() == 3);
    ir::LayerPlan plan;
    for (size_t i = 0; i < 3; ++i)
      plan.stages.push_back({.layers = {LayerId(i), LayerId(3 + i)}, .devices = {static_cast<int>(i)}});
    const cost::LayerMachine machine{.levels = {{.count = 3, .bandwidth = 1e9}}};
    auto assignment = cost::assignment_of(converted, plan, machine);
    REQUIRE(assignment.ok());
    CHECK(ir::build_stage_graph(converted.graph, *assignment).ok());
  }
}

TEST_CASE("layers of one class cannot be in two stages") {
  const ir::LayerGraph graph = training_chain(false);
  const cost::ConvertedLayers converted = cost::convert_layers(graph, Samples(4));
  ir::LayerPlan plan;
  plan.stages.push_back({.layers = {LayerId(0), LayerId(1), LayerId(2)}, .devices = {0}});
  plan.stages.push_back({.layers = {LayerId(3), LayerId(4), LayerId(5)}, .devices = {1}});
  CHECK_FALSE(cost::assignment_of(converted, plan, {.levels = {{.count = 2, .bandwidth = 1e9}}}).ok());
}

TEST_CASE("a stage of a tensor-parallel degree pays its collectives where its edges are cut, and only there") {
  ir::LayerGraph graph{.source = ir::LayerSource::kPiper};
  for (size_t i = 0; i < 3; ++i) {
    ir::LayerVariant variant{.seconds = 3};
    if (i > 0) variant.sync_from = {{LayerId(i - 1), 40}};
    if (i < 2) variant.sync_to = {{LayerId(i + 1), 20}};
    graph.layers.push_back({.id = ModelText(std::to_string(i)), .degrees = {{.degree = 2, .variants = {variant}}}});
    if (i > 0) graph.edges.push_back({.from = LayerId(i - 1), .to = LayerId(i), .bytes = 8});
  }
  ir::LayerPlan plan;
  plan.stages.push_back({.layers = {LayerId(0), LayerId(1)}, .devices = {0, 1}, .degree = 2});
  plan.stages.push_back({.layers = {LayerId(2)}, .devices = {2, 3}, .degree = 2});
  const cost::ConvertedLayers converted = cost::convert_layers(graph, Samples(1), &plan, 10);
  const auto forward = [&](size_t node) { return converted.graph.nodes[ir::PlanNodeId(node)].forward.at(1.0); };
  const auto backward = [&](size_t node) { return converted.graph.nodes[ir::PlanNodeId(node)].input_gradient.at(1.0); };
  CHECK(forward(0) == doctest::Approx(1));
  CHECK(forward(1) == doctest::Approx(1 + 2));  // 20 bytes on the way to layer 2
  CHECK(forward(2) == doctest::Approx(1 + 4));  // 40 bytes on the way from layer 1
  CHECK(backward(2) == doctest::Approx(2 + 4));
}
