// The function that a stage has for evaluation, beside its forward.

#include <doctest/doctest.h>

#include "codegen/cut_stages.h"
#include "codegen/stage_library.h"
#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

struct Files {
  bool evaluates = false;
  std::string forward, evaluate;
};

Files files_of(ir::Graph forward) {
  const ir::Graph graph = trained(std::move(forward), "mse", "y");
  const ir::PlanGraph plan = plan_of(graph, 8);
  const auto stages = stages_of(plan, std::vector<size_t>(plan.nodes.size(), 0), 8);
  REQUIRE(stages.ok());
  const auto cuts = codegen::cut_stages(graph, plan, *stages);
  REQUIRE(cuts.ok());
  const codegen::StageCut& cut = (*cuts)[ir::StageId(0)];
  Files files{.evaluates = codegen::evaluates_otherwise(graph, cut)};
  codegen::BlockTable blocks;
  for (const codegen::SourceFile& file :
       codegen::write_stage_functions(graph, ir::StageId(0), cut, codegen::lay_out_slots(graph, cut), {}, blocks)) {
    if (file.path.ends_with("/forward.cpp")) files.forward = file.text;
    if (file.path.ends_with("/evaluate.cpp")) files.evaluate = file.text;
  }
  return files;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("an evaluation drops nothing, takes running statistics, and saves nothing for a backward") {
  GraphMaker make;
  const auto x = make.input("x", {batch(), size(4), size(3)});
  std::vector<ir::ValueId> inputs = {make.node("Relu", {x})};
  for (const char* name : {"scale", "bias"}) inputs.push_back(make.weight(name, {size(4)}));
  for (const char* name : {"mean", "variance"}) {
    inputs.push_back(make.weight(name, {size(4)}, false));
    make.graph.param(ir::ParamId(make.graph.param_count() - 1)).kind = ir::ParamKind::kBuffer;
  }
  const auto normal = make.node("BatchNormalization", inputs, {{"training_mode", int64_t{1}}});
  const auto dropped = make.node("Dropout", {normal}, {{"ratio", 0.25}});
  make.output(make.node("Mul", {dropped, dropped}), "y");
  const Files files = files_of(std::move(make.graph));
  CHECK(files.evaluates);
  CHECK(has(files.forward, "dropout_mask"));
  CHECK(has(files.forward, "runtime::batch_norm("));
  CHECK(has(files.evaluate, "void evaluate("));
  CHECK_FALSE(has(files.evaluate, "dropout_mask"));
  CHECK_FALSE(has(files.evaluate, "runtime::batch_norm("));
  CHECK_FALSE(has(files.evaluate, "recompute"));  // no state is updated
  CHECK(has(files.evaluate, "rsqrt"));
  const auto stores = [](const std::string& text) {
    size_t count = 0;
    for (size_t at = text.find("  slot["); at != std::string::npos; at = text.find("  slot[", at + 1)) ++count;
    return count;
  };
  CHECK(stores(files.evaluate) == 1);  // the loss
  CHECK(stores(files.forward) > 1);
}

TEST_CASE("a stage that computes the same in an evaluation has no second function") {
  GraphMaker make;
  const auto x = make.input("x", {batch(), size(4)});
  make.output(make.node("Tanh", {make.node("MatMul", {x, make.weight("w", {size(4), size(4)})})}), "y");
  const Files files = files_of(std::move(make.graph));
  CHECK_FALSE(files.evaluates);
  CHECK(files.evaluate.empty());
}
