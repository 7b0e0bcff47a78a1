// Models whose file is one sample: where the samples stand, and what the nodes of the file see.

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::import_text;
using graphpipe::testing::nodes_of;
using graphpipe::testing::reports;

namespace {

Result<Imported> import_one_sample(const std::string& text, std::vector<ir::SymbolBinding> bindings = {}) {
  ImportRequest request;
  request.spec.one_sample = true;
  request.spec.bindings = std::move(bindings);
  return import_text(text, request);
}

}  // namespace

TEST_CASE("inputs and outputs have the samples in front, or instead of a size of 1 there; nodes see one sample") {
  const auto imported = import_one_sample(R"(g (float[6,4] x, float[1,4] y, float s) => (float[6,4] z, float[1,4] w) {
    a = Add(x, y)
    z = Mul(a, s)
    w = Relu(y) })");
  REQUIRE(imported.ok());
  const ir::Graph& graph = imported->graph;
  const auto shape = [&](ir::ValueId value) { return graph.value(value).type.shape; };
  const auto b = ir::Dim::batch();
  CHECK(shape(graph.inputs()[0].value) == ir::Shape{b, ir::Dim::fixed(6), ir::Dim::fixed(4)});
  CHECK(shape(graph.inputs()[1].value) == ir::Shape{b, ir::Dim::fixed(4)});
  CHECK(shape(graph.inputs()[2].value) == ir::Shape{b});
  CHECK(shape(graph.outputs()[0].value) == ir::Shape{b, ir::Dim::fixed(6), ir::Dim::fixed(4)});
  CHECK(shape(graph.outputs()[1].value) == ir::Shape{b, ir::Dim::fixed(4)});
  CHECK(nodes_of(imported).find("Add(%3, %4) : f32[6,4]") != std::string::npos);
  for (const ir::Output& output : graph.outputs()) {
    CHECK(graph.value(output.value).batch == ir::BatchKind::kAxis);
    CHECK(graph.value(output.value).batch_axis == 0);
  }
}

TEST_CASE("a single number, such as a loss, stays one") {
  const auto imported = import_one_sample("g (float[6] x) => (float loss) { loss = ReduceMean<keepdims = 0>(x) }");
  REQUIRE(imported.ok());
  CHECK(imported->graph.value(imported->graph.outputs()[0].value).type.shape.empty());
}

TEST_CASE("what works on the first dimension is refused where it is the batch, and read where the file is one sample") {
  for (const char* body :
       {"z = ReduceSum<keepdims = 0>(x)", "z = Softmax<axis = 0>(x)", "i = Transpose(x) z = MatMul(x, i)"}) {
    const std::string model = std::string("g (float[6,4] x) => (float[K] z) { ") + body + " }";
    const auto imported = import_one_sample(model);
    CHECK(imported.ok());
  }
  const std::string cut = R"(g (float[6,4] x) => (float[3,4] z) {
    z, rest = Split<axis = 0, num_outputs = 2>(x) })";
  CHECK(reports(import_text(cut).problems(), Code::kMixesSamples, "batch axis"));
  CHECK(import_one_sample(cut).ok());
}

TEST_CASE("no dimension is the batch: a name needs a size") {
  const std::string model = "g (float[N,4] x) => (float[N,4] z) { z = Relu(x) }";
  CHECK(reports(import_one_sample(model).problems(), Code::kUnresolvedShape, "has no size"));
  CHECK(import_one_sample(model, {{.symbol = ModelText("N"), .size = 3}}).ok());
  CHECK(reports(import_one_sample(model, {{.symbol = ModelText("N"), .size = 0}}).problems(), Code::kUsage,
                "--one-sample"));
}
