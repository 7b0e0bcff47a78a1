// A model file again, with other weights: one file, wherever the tensors of the first one lay.

#include "frontend/export_onnx.h"

#include <algorithm>

#include "frontend/import_onnx.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

namespace pb = graphpipe_onnx;

void move_out(pb::TensorProto& tensor, int64_t offset, int64_t length) {
  tensor.clear_float_data();
  tensor.clear_int64_data();
  tensor.clear_raw_data();
  tensor.set_data_location(pb::TensorProto::EXTERNAL);
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
           {"location", "model.data"}, {"offset", std::to_string(offset)}, {"length", std::to_string(length)}}) {
    pb::StringStringEntryProto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

const std::string kPlaces = bytes_of<int64_t>({2, 0, 1}), kWeights = bytes_of<float>({1, 2, 3});

/// A weight, an index beside it, and a constant in a branch, all in a file of their own.
pb::ModelProto model_with_file() {
  pb::ModelProto model = parse_onnx_text(
      "g (float[N,3] x, bool up) => (float[N,3] y) <float[3] w = {1, 2, 3}, int64[3] places = {2, 0, 1}> { "
      "a = Mul(x, w) b = Gather<axis = 1>(a, places) y = If(up) <then_branch = yes () => (float[N,3] c) { "
      "k = Constant<value = float[3] {1, 2, 3}>() c = Add(b, k) }, else_branch = no () => (float[N,3] d) { d = Neg(b) "
      "}> }");
  pb::GraphProto& graph = *model.mutable_graph();
  move_out(*graph.mutable_initializer(0), 0, 12);
  move_out(*graph.mutable_initializer(1), 16, 24);
  pb::NodeProto& choice = *graph.mutable_node(graph.node_size() - 1);
  for (pb::AttributeProto& branch : *choice.mutable_attribute())
    if (branch.name() == "then_branch")
      move_out(*branch.mutable_g()->mutable_node(0)->mutable_attribute(0)->mutable_t(), 0, 12);
  return model;
}

Result<pb::ModelProto> exported(const TemporaryFolder& folder, const std::map<std::string, NewTensor>& tensors) {
  std::set<std::string> replaced;
  const Result<std::string> bytes = export_onnx(folder / "model.onnx", "", ParameterRules(), tensors, replaced);
  if (!bytes) return bytes.problems();
  CHECK(replaced.size() == tensors.size());
  pb::ModelProto model;
  REQUIRE(model.ParseFromString(*bytes));
  return model;
}

}  // namespace

TEST_CASE("what lay in files beside the model comes into the new file, from branches too") {
  const TemporaryFolder folder;
  folder.write("model.onnx", model_with_file().SerializeAsString());
  folder.write("model.data", kWeights + std::string(4, '\0') + kPlaces);
  const std::string trained = bytes_of<float>({4, 5, 6});
  const auto model = exported(folder, {{"w", {.dtype = ir::DType::kFloat32, .dims = {3}, .bytes = trained}}});
  REQUIRE(model.ok());
  CHECK(model->graph().initializer(0).raw_data() == trained);
  CHECK(model->graph().initializer(1).raw_data() == kPlaces);
  CHECK(model->SerializeAsString().find("model.data") == std::string::npos);
  CHECK(model->SerializeAsString().find(kWeights) != std::string::npos);  // the constant of the branch
  CHECK(import_bytes(model->SerializeAsString()).ok());
}

TEST_CASE("a file beside the model that is too short, or lies elsewhere, is refused") {
  const TemporaryFolder folder;
  folder.write("model.data", kWeights);
  pb::ModelProto model = model_with_file();
  folder.write("model.onnx", model.SerializeAsString());
  CHECK(reports(exported(folder, {}).problems(), Code::kBadModel, "end at byte 16 + 24"));
  for (pb::StringStringEntryProto& entry : *model.mutable_graph()->mutable_initializer(0)->mutable_external_data())
    if (entry.key() == "location") entry.set_value("../model.data");
  folder.write("model.onnx", model.SerializeAsString());
  CHECK(!exported(folder, {}).ok());
}

TEST_CASE("parameters that an optimiser took the tensors of stand in the new file under their names") {
  const TemporaryFolder folder;
  const std::string model_path = std::string(GRAPHPIPE_SOURCE_DIR) + "/tests/data/exports/optimised/model.onnx";
  ImportRequest request;
  request.spec.path = ModelText(model_path);
  const auto before = import_onnx(request);
  REQUIRE(before.ok());
  std::map<std::string, NewTensor> tensors;
  const std::string elements(1 << 16, '\0');
  for (const ir::ParamId id : before->graph.param_ids()) {
    const ir::Param& param = before->graph.param(id);
    if (param.kind == ir::ParamKind::kConstant) continue;
    const ir::TensorType& type = before->graph.value(param.value).type;
    std::vector<int64_t> dims;
    for (const ir::Dim dim : type.shape) dims.push_back(dim.factor);
    tensors[param.name.raw()] = {
        .dtype = type.dtype,
        .dims = dims,
        .bytes = std::string_view(elements).substr(0, static_cast<size_t>(ir::byte_size(type, Samples(1)).count))};
  }
  std::set<std::string> replaced;
  const auto bytes = export_onnx(model_path, "", ParameterRules(), tensors, replaced);
  REQUIRE(bytes.ok());
  CHECK(replaced.size() == tensors.size());
  folder.write("new.onnx", *bytes);
  request.spec.path = ModelText(folder / "new.onnx");
  const auto after = import_onnx(request);
  REQUIRE(after.ok());
  CHECK(after->graph.node_count() == before->graph.node_count());
  CHECK_FALSE(reports(after->notes, Code::kLostByExport, "there again"));
  for (const auto& [name, tensor] : tensors)
    CHECK(std::ranges::any_of(after->parameters, [&](const auto& decision) { return decision.name.raw() == name; }));
  // Those of layers that no output of the training needs have what the file has: as it is, turned by a node, and zeros.
  for (const char* name : {"encoder.layers.1.norm1.weight", "norm1.weight", "inner.weight", "inner.bias"})
    tensors.erase(name);
  replaced.clear();
  const auto partly = export_onnx(model_path, "", ParameterRules(), tensors, replaced);
  REQUIRE(partly.ok());
  CHECK(replaced.size() == tensors.size());
  pb::ModelProto written;
  REQUIRE(written.ParseFromString(*partly));
  std::map<std::string, std::string> held;
  for (const pb::TensorProto& tensor : written.graph().initializer()) {
    held[tensor.name()] = tensor.raw_data();
    if (tensor.name() == "norm1.weight") CHECK(tensor.dims_size() == 1);  // of groups: nodes read [16,1,1]
  }
  CHECK(held.contains("norm1.weight"));
  CHECK(held.at("encoder.layers.1.norm1.weight") == bytes_of(std::vector<float>(16, 1)));
  CHECK(held.at("inner.bias") == std::string(16 * sizeof(float), '\0'));
  CHECK(held.at("inner.weight/stored").size() == 16 * 16 * sizeof(float));
  CHECK(import_bytes(*partly).ok());
}
