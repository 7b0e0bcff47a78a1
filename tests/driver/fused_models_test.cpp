// What the fusions find in whole models as exporters write them: an operator that a new form hides from a pass is
// computed from its parts, which costs time and memory and nothing else, so that no other test notices.

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "frontend/import_onnx.h"
#include "passes/pipeline.h"
#include "tests/support/count_ops.h"
#include "tests/support/test_data.h"

using namespace graphpipe;

namespace {

/// The forward operators of a model after the fusions.
ir::Graph fused(const std::string& file) {
  frontend::ImportRequest request;
  request.spec.path = ModelText(std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/" + file + "/model.onnx");
  auto imported = frontend::import_onnx(request);
  for (const Diagnostic& problem : imported.problems()) MESSAGE(to_line(problem));
  REQUIRE(imported.ok());
  passes::PassContext context;
  context.forward_only = true;
  auto graph = passes::run_pipeline(std::move(imported->graph), context);
  for (const Diagnostic& problem : graph.problems()) MESSAGE(to_line(problem));
  REQUIRE(graph.ok());
  return *std::move(graph);
}

using Counts = std::map<std::string, size_t>;

/// Of the file as it is exported by default, optimised or not, by either exporter, with masks of several forms; what
/// is counted as 0 is what fusions leave of none.
const std::map<std::string, Counts> kExpected = {
    {"models/gpt2_like",
     {{"Attention", 3}, {"Linear", 19}, {"LayerNormalization", 7}, {"Gelu", 3}, {"Softmax", 0}, {"Where", 0}}},
    {"models/clip_like",
     {{"Attention", 4}, {"Linear", 26}, {"LayerNormalization", 10}, {"Gelu", 4}, {"Softmax", 0}, {"Where", 0}}},
    {"models/mmt", {{"Attention", 8}, {"Linear", 53}, {"LayerNormalization", 16}, {"Gelu", 8}, {"Softmax", 0}}},
    {"exports/bert", {{"Attention", 1}, {"Linear", 8}, {"LayerNormalization", 3}, {"Gelu", 1}, {"Softmax", 0}}},
    {"exports/decoder",
     {{"Attention", 1},
      {"Rotary", 2},
      {"Linear", 8},
      {"RMSNormalization", 2},
      {"Silu", 1},
      {"Softmax", 0},
      {"Tile", 0}}},
    {"exports/gpt2_labels",
     {{"Attention", 2}, {"Linear", 9}, {"LayerNormalization", 5}, {"Gelu", 2}, {"Softmax", 0}, {"Tanh", 0}}},
    {"exports/optimised", {{"Attention", 2}, {"Linear", 10}, {"LayerNormalization", 5}, {"Softmax", 0}}},
};

}  // namespace

TEST_CASE("attention, linear layers, norms and activations of exported models are single operators") {
  for (const auto& [file, counts] : kExpected) {
    const ir::Graph graph = fused(file);
    CAPTURE(file);
    for (const auto& [op, count] : counts) {
      CAPTURE(op);
      CHECK(testing::count_ops(graph, op) == count);
    }
  }
}
