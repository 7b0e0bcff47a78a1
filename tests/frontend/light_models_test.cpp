// Nine ImageNet graphs of opset 9 whose weights are filled tensors and whose batch of 1 is baked into Reshapes.

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "frontend/import_onnx.h"
#include "ir/verify_graph.h"
#include "tests/support/test_data.h"

using namespace graphpipe;
using namespace graphpipe::frontend;

TEST_CASE("the light graphs import, re-bound to any batch, with their weights as parameters") {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(tests::data_path("onnx-light")))
    if (entry.path().extension() == ".onnx") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  CHECK(files.size() == 9);
  for (const std::filesystem::path& file : files) {
    CAPTURE(file.filename().string());
    ImportRequest request;
    request.spec.path = ModelText(file.string());
    const Result<Imported> imported = import_onnx(request);
    for (const Diagnostic& problem : imported.problems()) MESSAGE(to_line(problem));
    REQUIRE(imported.ok());
    CHECK(ir::verify_graph(imported->graph).ok());
    CHECK(imported->traced_batch == 1);
    REQUIRE(imported->graph.outputs().size() == 1);
    const ir::Value& output = imported->graph.value(imported->graph.outputs()[0].value);
    CHECK(output.type.shape[0] == ir::Dim::batch());
    CHECK(output.batch == ir::BatchKind::kAxis);
    size_t convolutions = 0, trained_weights = 0;
    for (ir::NodeId id : imported->graph.node_ids()) convolutions += imported->graph.node(id).op == "Conv";
    for (const ParameterDecision& decision : imported->parameters)
      trained_weights += decision.trainable && decision.role == ParameterRole::kWeight;
    CHECK(trained_weights >= convolutions);
  }
}
