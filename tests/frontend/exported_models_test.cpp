// Models as users export them: both exporters, several opsets, layers that become loops or arithmetic.

#include <doctest/doctest.h>

#include "frontend/import_onnx.h"
#include "ir/verify_graph.h"
#include "tests/support/count_ops.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::count_ops;

namespace {

struct Export {
  const char* name;
  size_t parameters;  // of the PyTorch module
  const char* op;     // what must be in the graph
};

Imported import_export(const char* name) {
  ImportRequest request;
  request.spec.path = ModelText(std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/exports/" + name + "/model.onnx");
  Result<Imported> imported = import_onnx(request);
  for (const Diagnostic& problem : imported.problems()) MESSAGE(to_line(problem));
  REQUIRE(imported.ok());
  CHECK(ir::verify_graph(imported->graph).ok());
  return std::move(*imported);
}

}  // namespace

TEST_CASE("every export keeps its batch symbolic and trains the parameters of its module, and nothing else") {
  for (const Export& model :
       {Export{"bags", 7, "ReduceMax"}, Export{"lstm", 11, "LSTM"}, Export{"decoder", 12, "Softmax"},
        Export{"unet", 16, "ConvTranspose"}, Export{"bert", 25, "LayerNormalization"},
        Export{"gpt2_labels", 28, "SoftmaxCrossEntropyLoss"}}) {
    CAPTURE(model.name);
    const Imported imported = import_export(model.name);
    CHECK(imported.batch_symbol == ModelText("batch"));
    CHECK(count_ops(imported.graph, model.op) > 0);
    size_t trained = 0;
    for (const ParameterDecision& decision : imported.parameters) trained += decision.trainable;
    CHECK(trained == model.parameters);
  }
}

TEST_CASE("bags of every mode are reductions, and no loop is left") {
  const Imported imported = import_export("bags");
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax"}) CHECK(count_ops(imported.graph, op) == 1);
}
