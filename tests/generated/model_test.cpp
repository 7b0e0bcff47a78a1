// The example models all the way to generated text: import, passes, cut at any place, and, for one, the compiler.

#include <doctest/doctest.h>

#include <filesystem>

#include "codegen/cut_stages.h"
#include "codegen/generate.h"
#include "frontend/import_onnx.h"
#include "passes/pipeline.h"
#include "tests/support/training_graphs.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

struct Model {
  const char* name;
  const char* kind;
  const char* output;
  const char* label;
};
const Model kModels[] = {
    {"clip_like", "contrastive", "similarity", ""},
    {"mmt", "cross_entropy", "logits", "label"},
    {"dlrm", "bce", "logits", "label"},
    {"resnet", "cross_entropy", "logits", "label"},
    {"gpt2_like", "cross_entropy", "logits", "label"},
};

ir::Graph import(const char* name) {
  frontend::ImportRequest request;
  request.spec.path = ModelText(std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/models/" + name + "/model.onnx");
  auto imported = frontend::import_onnx(request);
  for (const Diagnostic& problem : imported.problems()) MESSAGE(to_line(problem));
  REQUIRE(imported.ok());
  return std::move(imported->graph);
}

}  // namespace

TEST_CASE("every example model is differentiated, cut at any place and written") {
  for (const Model& model : kModels) {
    CAPTURE(model.name);
    ir::Graph imported = import(model.name);
    passes::PassContext context;
    context.loss = {.kind = model.kind, .output = ModelText(model.output), .label = ModelText(model.label)};
    if (imported.outputs().size() == 1) context.loss.output = imported.outputs().front().name;
    const auto graph = passes::run_pipeline(std::move(imported), context);
    for (const Diagnostic& problem : graph.problems()) MESSAGE(to_line(problem));
    REQUIRE(graph.ok());
    const ir::PlanGraph plan = plan_of(*graph, 8);
    for (size_t count : {1, 2, 4}) {
      CAPTURE(count);
      std::vector<size_t> stage_of;
      for (size_t i = 0; i < plan.nodes.size(); ++i) stage_of.push_back(i * count / plan.nodes.size());
      const auto stages = stages_of(plan, stage_of, 8);
      REQUIRE(stages.ok());
      ir::Schedule schedule;
      for (ir::StageId stage : stages->stage_ids()) {
        ir::Action forward;
        forward.stage = static_cast<int32_t>(stage.index());
        forward.range = {0, 8};
        schedule.programs.push_back({stages->stages[stage].choice.devices.front(), {forward}});
      }
      const auto files = codegen::generate(*graph, plan, *stages, schedule, {});
      for (const Diagnostic& problem : files.problems()) MESSAGE(to_line(problem));
      REQUIRE(files.ok());
      for (const codegen::SourceFile& file : *files) CHECK(!file.text.empty());
    }
  }
}
