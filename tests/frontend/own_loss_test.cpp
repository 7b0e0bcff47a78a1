// Losses that a model computes itself.

#include <doctest/doctest.h>

#include "frontend/import_onnx.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using graphpipe::testing::import_text;
using graphpipe::testing::reports;

TEST_CASE("CLIP's own loss compares all samples with all: the batch is the samples and the classes") {
  const auto imported = import_text(R"(g (float[N,4] image, float[N,4] text) => (float loss)
    <int64 zero = {0}, int64 one = {1}> {
    t = Transpose<perm = [1, 0]>(text)
    [similarity] logits = MatMul(image, t)
    size = Shape<start = 0, end = 1>(logits)
    length = Squeeze(size)
    labels = Range(zero, length, one)
    loss, probabilities = SoftmaxCrossEntropyLoss<reduction = "mean", ignore_index = -100>(logits, labels) })");
  for (const Diagnostic& problem : imported.problems()) MESSAGE(to_line(problem));
  REQUIRE(imported.ok());
  bool found = false;
  for (const ir::NodeId id : imported->graph.node_ids()) {
    const ir::Node& node = imported->graph.node(id);
    if (node.op != "SoftmaxCrossEntropyLoss") continue;
    found = true;
    CHECK(imported->graph.value(node.inputs[0]).type.shape == ir::Shape{ir::Dim::batch(), ir::Dim::batch()});
    CHECK(imported->graph.value(node.inputs[0]).batch == ir::BatchKind::kMixed);
    CHECK(imported->graph.value(node.inputs[1]).type.shape == ir::Shape{ir::Dim::batch()});
    CHECK(imported->graph.value(node.outputs[0]).batch == ir::BatchKind::kMixed);
  }
  CHECK(found);
}

TEST_CASE("other losses still have classes that no batch changes") {
  const auto imported = import_text(R"(g (float[N,4] x, int64[4] label) => (float loss) {
    t = Transpose<perm = [1, 0]>(x)
    [loss] loss = SoftmaxCrossEntropyLoss(t, label) })");
  REQUIRE_FALSE(imported.ok());
  for (const Diagnostic& problem : imported.problems()) MESSAGE(to_line(problem));
}
