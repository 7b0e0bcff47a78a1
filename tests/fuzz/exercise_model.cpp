#include "tests/fuzz/exercise_model.h"

#include "cost/price.h"
#include "frontend/import_onnx.h"
#include "ir/verify_graph.h"
#include "passes/pipeline.h"
#include "support/check.h"

namespace graphpipe::tests {
namespace {

// No byte of a hostile file reaches a terminal, and a problem says what to do.
void check_words(const Diagnostics& problems) {
  for (const Diagnostic& problem : problems) {
    for (const char c : to_line(problem)) GP_CHECK(c >= 0x20 && c < 0x7f);
    GP_CHECK(!problem.message.empty() && !problem.hint.empty());
  }
}

bool price(const ir::Graph& graph, const passes::PassContext& context) {
  const Result<ir::Graph> passed = passes::run_pipeline(graph, context);
  check_words(passed.problems());
  if (!passed.ok()) return false;
  GP_CHECK(ir::verify_graph(*passed).ok());
  const Result<ir::PlanGraph> priced = cost::price(*passed, ir::equal_devices(2), {.batch = Samples(4)});
  check_words(priced.problems());
  return priced.ok();
}

ir::LossSpec loss_of(const ir::Graph& graph, const ir::Output& output) {
  ir::LossSpec loss{.kind = "output", .output = output.name};
  if (!graph.value(output.value).type.shape.empty()) {
    loss.kind = "mse";
    loss.label = ModelText("label");
  }
  return loss;
}

/// The importer writes other nodes where it knows that a model is trained.
bool price_trained(frontend::ImportRequest request, std::string_view bytes, const ir::LossSpec& loss) {
  request.spec.loss = loss;
  const Result<frontend::Imported> imported = frontend::import_onnx(request, bytes);
  check_words(imported.problems());
  if (!imported.ok()) return false;
  check_words(imported->notes);
  GP_CHECK(ir::verify_graph(imported->graph).ok());
  return price(imported->graph, {.loss = loss});
}

}  // namespace

ModelFate exercise_model(std::string_view bytes, frontend::Isolation isolation, bool* crashed) {
  frontend::ImportRequest request;
  request.spec.path = ModelText("model.onnx");
  request.isolation = isolation;
  // Thousands of iterations show nothing that some do not, and take as long as a thousand other models.
  request.limits.iterations = 64;
  request.limits.unrolled_nodes = 1000;
  const Result<frontend::Imported> imported = frontend::import_onnx(request, bytes);
  check_words(imported.problems());
  for (const Diagnostic& problem : imported.problems())
    if (crashed != nullptr && problem.message.find("library crashes") != std::string::npos) *crashed = true;
  if (!imported.ok()) return ModelFate::kRefused;
  check_words(imported->notes);
  GP_CHECK(ir::verify_graph(imported->graph).ok());
  bool priced = price(imported->graph, {.forward_only = true});
  const ir::Graph& graph = imported->graph;
  for (const ir::Output& output : graph.outputs()) priced = price(graph, {.loss = loss_of(graph, output)}) || priced;
  if (!graph.outputs().empty()) priced = price_trained(request, bytes, loss_of(graph, graph.outputs()[0])) || priced;
  return priced ? ModelFate::kPriced : ModelFate::kImported;
}

}  // namespace graphpipe::tests
