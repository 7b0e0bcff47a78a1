#include "passes/differentiate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "ir/graph_text.h"
#include "ir/verify_graph.h"
#include "passes/attach_loss.h"
#include "passes/check_types.h"
#include "passes/pipeline.h"
#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

passes::PassContext cross_entropy_on(const char* output) {
  passes::PassContext context;
  context.loss = {.kind = "cross_entropy", .output = ModelText(output), .label = ModelText("label")};
  return context;
}
passes::PassContext squared_error_on(const char* output) {
  passes::PassContext context;
  context.loss = {.kind = "mse", .output = ModelText(output), .label = ModelText("target")};
  return context;
}

ir::Graph trained(ir::Graph graph, const passes::PassContext& context) {
  auto result = passes::run_pipeline(std::move(graph), context);
  for (const Diagnostic& problem : result.problems()) MESSAGE(to_line(problem));
  REQUIRE(result.ok());
  return std::move(result).value();
}

std::vector<ir::GradientShare> shares_of(const ir::Graph& graph, const char* name) {
  std::vector<ir::GradientShare> shares;
  for (const ir::GradientShare& share : graph.gradient_shares())
    if (graph.param(share.param).name == ModelText(name)) shares.push_back(share);
  return shares;
}

/// Laws of every differentiated graph.
void check_laws(const ir::Graph& graph) {
  const Status sound = ir::verify_graph(graph, passes::check_types);
  for (const Diagnostic& problem : sound.problems()) MESSAGE(to_line(problem));
  CHECK(sound.ok());
  bool in_gradients = false;
  for (ir::NodeId id : graph.node_ids()) {
    const ir::Node& node = graph.node(id);
    in_gradients |= node.phase != ir::Phase::kForward;
    CHECK_MESSAGE((node.phase != ir::Phase::kForward) == in_gradients, "forward nodes come first");
    if (node.phase == ir::Phase::kForward) continue;
    REQUIRE(node.serves.valid());
    CHECK(graph.node(node.serves).phase == ir::Phase::kForward);
  }
  ir::ValueId previous;
  for (const ir::GradientShare& share : graph.gradient_shares()) {
    CHECK(graph.param(share.param).trainable);
    CHECK(graph.value(share.value).type == graph.value(graph.param(share.param).value).type);
    CHECK(graph.node(graph.value(share.value).producer).phase == ir::Phase::kWeightGradient);
    if (previous.valid()) CHECK_MESSAGE(previous < share.value, "shares are in node order");
    previous = share.value;
  }
}

}  // namespace

TEST_CASE("a linear network has one share per parameter, and W nodes for weights only") {
  const ir::Graph graph = trained(mlp(), cross_entropy_on("logits"));
  check_laws(graph);
  CHECK(graph.gradient_shares().size() == 4);
  for (ir::NodeId id : graph.node_ids()) {
    const ir::Node& node = graph.node(id);
    if (node.phase == ir::Phase::kForward) continue;
    // Each gradient of this network is of a value with samples (I) or of a weight (W).
    const bool ends_in_weight = std::ranges::any_of(graph.gradient_shares(), [&](const ir::GradientShare& share) {
      return graph.value(share.value).producer == id;
    });
    if (ends_in_weight) CHECK(node.phase == ir::Phase::kWeightGradient);
  }
}

TEST_CASE("float64 differentiates like float32") {
  const ir::Graph single = trained(mlp(), cross_entropy_on("logits"));
  const ir::Graph twice = trained(mlp(ir::DType::kFloat64), cross_entropy_on("logits"));
  check_laws(twice);
  CHECK(single.node_count() == twice.node_count());
}

TEST_CASE("a frozen part gets no backward") {
  const ir::Graph graph = trained(mlp(ir::DType::kFloat32, false), cross_entropy_on("logits"));
  check_laws(graph);
  CHECK(graph.gradient_shares().size() == 2);
  CHECK(shares_of(graph, "fc1.weight").empty());
  for (ir::ValueId value : graph.value_ids()) {
    const ir::NodeId producer = graph.value(value).producer;
    if (!producer.valid() || graph.node(producer).op != "Relu") continue;
    CHECK_MESSAGE(!graph.gradient_of()[value].valid(), "nothing trainable lies above the hidden layer");
  }
}

TEST_CASE("each use of a parameter is a share; gradients of fan-out are added from the last reader to the first") {
  const ir::Graph graph = trained(branches(), squared_error_on("y"));
  check_laws(graph);
  CHECK(shares_of(graph, "tied").size() == 2);
  CHECK(shares_of(graph, "log_scale").size() == 1);
  std::map<ir::ValueId, std::vector<ir::NodeId>> readers_in_order;
  for (ir::NodeId id : graph.node_ids()) {
    const ir::Node& sum = graph.node(id);
    if (!sum.sums_gradient_of.valid()) continue;
    std::vector<ir::NodeId>& readers = readers_in_order[sum.sums_gradient_of];
    for (ir::ValueId operand : sum.inputs) {
      const ir::Node& producer = graph.node(graph.value(operand).producer);
      if (!producer.sums_gradient_of.valid()) readers.push_back(producer.serves);
    }
  }
  REQUIRE(!readers_in_order.empty());
  size_t largest = 0;
  for (const auto& [value, readers] : readers_in_order) {
    largest = std::max(largest, readers.size());
    CHECK(std::ranges::is_sorted(readers, std::greater<>()));
    CHECK(std::ranges::adjacent_find(readers) == readers.end());
    for (ir::NodeId reader : readers) {
      const std::vector<ir::ValueId>& inputs = graph.node(reader).inputs;
      CHECK_MESSAGE(std::ranges::find(inputs, value) != inputs.end(), "an operand serves a reader of the value");
    }
  }
  CHECK(largest == 3);
}

TEST_CASE("the gradient of what has no samples is W, also when it is added up") {
  const ir::Graph graph = trained(branches(), squared_error_on("y"));
  for (ir::ValueId value : graph.value_ids()) {
    const ir::ValueId gradient = graph.gradient_of()[value];
    if (!gradient.valid()) continue;
    const ir::Phase phase = graph.node(graph.value(gradient).producer).phase;
    const bool no_samples = graph.value(value).batch == ir::BatchKind::kNone;
    CHECK(phase == (no_samples ? ir::Phase::kWeightGradient : ir::Phase::kInputGradient));
  }
}

TEST_CASE("nothing to train is an error with a hint") {
  ir::Graph graph = mlp();
  for (ir::ParamId id : graph.param_ids()) graph.param(id).trainable = false;
  const auto result = passes::run_pipeline(std::move(graph), cross_entropy_on("logits"));
  REQUIRE(!result.ok());
  CHECK(result.problems().front().code == Code::kUntrainable);
  CHECK(!result.problems().front().hint.empty());
}

TEST_CASE("an operator without a gradient behind which all parameters lie is named") {
  GraphMaker make;
  const auto x = make.input("x", {batch(), size(4)});
  const auto w = make.weight("w", {size(4), size(3)});
  make.output(make.node("Neg", {make.node("Floor", {make.node("MatMul", {x, w})})}), "y");
  const auto result = passes::run_pipeline(std::move(make.graph), squared_error_on("y"));
  REQUIRE(!result.ok());
  CHECK(result.problems().size() == 1);
  CHECK(result.problems().front().message.find("through this Floor") != std::string::npos);
}

TEST_CASE("a parameter that no gradient reaches is frozen with a note") {
  GraphMaker make;
  const auto x = make.input("x", {batch(), size(4)});
  const auto w = make.weight("used", {size(4), size(3)});
  const auto cut = make.weight("behind_floor", {size(3)});
  make.output(make.node("Add", {make.node("MatMul", {x, w}), make.node("Floor", {cut})}), "y");
  Diagnostics notes;
  passes::PassContext context = squared_error_on("y");
  context.notes = &notes;
  const ir::Graph graph = trained(std::move(make.graph), context);
  REQUIRE(notes.size() == 1);
  CHECK(notes.front().origin == ModelText("behind_floor"));
  for (ir::ParamId id : graph.param_ids())
    CHECK(graph.param(id).trainable == (graph.param(id).name == ModelText("used")));
}

TEST_CASE("without a loss the graph stays as it is") {
  const ir::Graph graph = mlp();
  const auto result = passes::differentiate(graph, {});
  REQUIRE(result.ok());
  CHECK(*result == graph);
}
