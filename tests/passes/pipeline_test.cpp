#include "passes/pipeline.h"

#include <doctest/doctest.h>

#include "passes/merge_identical_nodes.h"
#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;

TEST_CASE("the pipeline stops where it is told, and names what it does not know") {
  passes::PassContext context;
  context.loss = {.kind = "cross_entropy", .output = ModelText("logits"), .label = ModelText("label")};
  for (const passes::PassEntry& pass : passes::training_pipeline()) {
    CAPTURE(pass.name);
    CHECK(!pass.description.empty());
    std::vector<std::string_view> seen;
    passes::PipelineOptions options;
    options.stop_after = pass.name;
    options.observe = [&](const passes::PassEntry& row, const ir::Graph&, Seconds) { seen.push_back(row.name); };
    const auto result = passes::run_pipeline(mlp(), context, options);
    REQUIRE(result.ok());
    CHECK(seen.back() == pass.name);
    CHECK(result->gradient_shares().empty() == (pass.name != "differentiate"));
  }
  const auto unknown = passes::run_pipeline(mlp(), context, {.stop_after = "no-such-pass", .observe = {}});
  REQUIRE(!unknown.ok());
  CHECK(unknown.problems().front().code == Code::kUsage);
}

TEST_CASE("equal views of a weight become one; equal activations and different attributes stay") {
  GraphMaker make;
  const auto x = make.input("x", {batch(), size(4)});
  const auto w = make.weight("w", {size(4), size(4)});
  const ir::Attributes swap = {{"perm", std::vector<int64_t>{1, 0}}};
  const ir::Attributes keep = {{"perm", std::vector<int64_t>{0, 1}}};
  const auto a = make.node("MatMul", {make.node("Relu", {x}), make.node("Transpose", {w}, swap)});
  const auto b = make.node("MatMul", {make.node("Relu", {a}), make.node("Transpose", {w}, swap)});
  const auto c = make.node("MatMul", {make.node("Relu", {x}), make.node("Transpose", {w}, keep)});
  make.output(make.node("Add", {b, c}), "y");
  const auto merged = passes::merge_identical_nodes(make.graph, {});
  REQUIRE(merged.ok());
  size_t transposes = 0, relus = 0;
  for (ir::NodeId id : merged->node_ids()) {
    transposes += merged->node(id).op == "Transpose";
    relus += merged->node(id).op == "Relu";
    if (merged->node(id).op == "Transpose" && transposes == 1) CHECK(merged->node(id).origins.size() == 2);
  }
  CHECK(transposes == 2);
  CHECK(relus == 3);
}

TEST_CASE("equal parameters stay apart: ties are the model's decision") {
  GraphMaker make;
  const auto x = make.input("x", {batch(), size(4)});
  const auto first = make.node("MatMul", {x, make.weight("first", {size(4), size(4)})});
  make.output(make.node("MatMul", {first, make.weight("second", {size(4), size(4)})}), "y");
  const auto merged = passes::merge_identical_nodes(make.graph, {});
  REQUIRE(merged.ok());
  CHECK(merged->param_count() == 2);
}
