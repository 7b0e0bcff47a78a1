// The exported example models: what a raw torch.onnx export becomes.

#include <doctest/doctest.h>

#include <algorithm>

#include "frontend/import_onnx.h"
#include "ir/verify_graph.h"
#include "tests/support/count_ops.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::count_ops;

namespace {

Imported import_example(const std::string& name, ImportRequest request = {}) {
  request.spec.path = ModelText(std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/models/" + name + "/model.onnx");
  Result<Imported> imported = import_onnx(request);
  for (const Diagnostic& problem : imported.problems()) MESSAGE(to_line(problem));
  REQUIRE(imported.ok());
  const Status verified = ir::verify_graph(imported->graph);
  for (const Diagnostic& problem : verified.problems()) MESSAGE(to_line(problem));
  CHECK(verified.ok());
  return std::move(*imported);
}

size_t count_trained(const Imported& imported) {
  return static_cast<size_t>(std::count_if(imported.parameters.begin(), imported.parameters.end(),
                                           [](const ParameterDecision& decision) { return decision.trainable; }));
}

}  // namespace

TEST_CASE("the four-branch transformer keeps its batch and all its parameters") {
  const Imported imported = import_example("mmt");
  CHECK(imported.batch_symbol == ModelText("batch"));
  CHECK(imported.traced_batch == 0);
  CHECK(imported.graph.inputs().size() == 4);
  REQUIRE(imported.graph.outputs().size() == 1);
  CHECK(imported.graph.value(imported.graph.outputs()[0].value).type.shape ==
        ir::Shape{ir::Dim::batch(), ir::Dim::fixed(10)});
  CHECK(count_ops(imported.graph, "Softmax") == 8);
  // Shape arithmetic is folded: nothing of it is left.
  for (const char* op : {"Shape", "Constant", "ConstantOfShape"}) CHECK(count_ops(imported.graph, op) == 0);
  CHECK(count_trained(imported) == imported.parameters.size());
}

TEST_CASE("tables that are only looked up have a gradient by rows") {
  const Imported imported = import_example("dlrm");
  size_t tables = 0;
  for (const ParameterDecision& decision : imported.parameters)
    if (decision.role == ParameterRole::kEmbedding) {
      ++tables;
      CHECK(imported.graph.param(decision.param).gradient_by_rows);
    }
  CHECK(tables == 3);
}

TEST_CASE("weights stay in their file") {
  const Imported imported = import_example("mmt");
  for (ir::ParamId id : imported.graph.param_ids()) {
    const ir::Param& param = imported.graph.param(id);
    const Bytes size = ir::byte_size(imported.graph.value(param.value).type, Samples(1));
    if (size > Bytes(64)) CHECK(std::holds_alternative<ir::FileRange>(param.data));
  }
}

TEST_CASE("a freeze pattern freezes what it names, and one that names nothing is an error") {
  ImportRequest request;
  request.spec.freeze = {ModelText("branches.0.*")};
  const Imported imported = import_example("mmt", request);
  for (const ParameterDecision& decision : imported.parameters)
    CHECK(decision.trainable != decision.name.raw().starts_with("branches.0."));

  request.spec.freeze = {ModelText("branhces.*")};
  request.spec.path = ModelText(std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/models/mmt/model.onnx");
  const Result<Imported> refused = import_onnx(request);
  REQUIRE(!refused.ok());
  CHECK(refused.problems()[0].code == Code::kBadParameter);
}

TEST_CASE("all five example models import with every parameter of their module") {
  for (const char* name : {"clip_like", "dlrm", "gpt2_like", "mmt", "resnet"}) {
    CAPTURE(name);
    const Imported imported = import_example(name);
    CHECK(imported.batch_symbol == ModelText("batch"));
    for (const ParameterDecision& decision : imported.parameters)
      CHECK(decision.trainable != (decision.role == ParameterRole::kStatistic));
  }
}

TEST_CASE("the similarity of the CLIP-like model mixes samples, and its logit scale trains") {
  const Imported imported = import_example("clip_like");
  const ir::Value& similarity = imported.graph.value(imported.graph.outputs()[0].value);
  CHECK(similarity.type.shape == ir::Shape{ir::Dim::batch(), ir::Dim::batch()});
  CHECK(similarity.batch == ir::BatchKind::kMixed);
  const bool scale_trains =
      std::any_of(imported.parameters.begin(), imported.parameters.end(), [](const ParameterDecision& decision) {
        return decision.name.raw().find("scale") != std::string::npos && decision.trainable;
      });
  CHECK(scale_trains);
}

TEST_CASE("a convolution without bias gets none, and BatchNormalization takes the mode that was asked for") {
  const auto modes = [](ir::BatchNormMode mode) {
    ImportRequest request;
    request.spec.batch_norm = mode;
    const Imported imported = import_example("resnet", request);
    size_t training = 0;
    for (ir::NodeId id : imported.graph.node_ids()) {
      const ir::Node& node = imported.graph.node(id);
      if (node.op == "Conv") CHECK(node.inputs.size() == 2);
      if (node.op == "BatchNormalization") training += node.attributes.get_int("training_mode", 0) != 0;
    }
    return training;
  };
  CHECK(modes(ir::BatchNormMode::kTrain) == 9);
  CHECK(modes(ir::BatchNormMode::kEval) == 0);
  CHECK(modes(ir::BatchNormMode::kFile) == 0);  // the exporter never marks it
}

TEST_CASE("a tied embedding is one parameter with two uses") {
  const Imported imported = import_example("gpt2_like");
  const auto readers = ir::readers_of_values(imported.graph);
  size_t tables = 0;
  for (ir::ParamId id : imported.graph.param_ids()) {
    const ir::Param& param = imported.graph.param(id);
    bool looked_up = false, multiplied = false;
    for (ir::NodeId node_id : readers[param.value]) {
      const std::string& op = imported.graph.node(node_id).op;
      looked_up = looked_up || op == "Gather";
      multiplied = multiplied || op == "Transpose" || op == "MatMul";
    }
    if (!looked_up || !multiplied) continue;
    ++tables;
    CHECK_FALSE(param.gradient_by_rows);  // the head's gradient touches every row
  }
  CHECK(tables == 1);
}
