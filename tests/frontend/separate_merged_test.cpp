// Layers and tokens that an exporter's optimiser has merged with equal ones are given back.

#include "frontend/separate_merged.h"

#include <map>
#include <set>

#include "frontend/export_onnx.h"
#include "ir/verify_graph.h"
#include "tests/support/count_ops.h"
#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

const std::string kNorm = "layer_norm.default](args = (%x, [3], %p_a.one.weight, %p_a.one.bias, 1e-05), kwargs = {})";

/// The text of models knows no names of modules.
std::string with_modules(const std::string& bytes) {
  graphpipe_onnx::ModelProto model;
  REQUIRE(model.ParseFromString(bytes));
  const std::map<std::string, std::string> names = {{"one_weight", "a.one.weight"}, {"one_bias", "a.one.bias"}};
  for (graphpipe_onnx::TensorProto& tensor : *model.mutable_graph()->mutable_initializer())
    if (const auto found = names.find(tensor.name()); found != names.end()) tensor.set_name(found->second);
  for (graphpipe_onnx::NodeProto& node : *model.mutable_graph()->mutable_node())
    for (std::string& input : *node.mutable_input())
      if (const auto found = names.find(input); found != names.end()) input = found->second;
  return model.SerializeAsString();
}

std::string line(int number) { return text("\"block.py\", line ", number, ", in forward\n    x = f(x)"); }

/// A norm as it begins, whose two readers stand on lines of their own.
Notes begun() {
  return {.folded_from = {},
          .elements = {{"a.one.weight", {1, 1, 1}}, {"a.one.bias", {0, 0, 0}}},
          .places = {{"r", {"a", line(1)}}, {"s", {"a", line(2)}}}};
}

/// y = relu(one(x)) * sigmoid(two(x)), of which the file has the first norm alone. The second call takes `taken`.
std::string two_norms(const std::vector<std::string>& more, const std::string& taken = "%layer_norm_1",
                      const Notes& notes = begun()) {
  std::vector<std::string> parameters = {"a.one.weight", "a.one.bias"};
  parameters.insert(parameters.end(), more.begin(), more.end());
  const std::string model = with_modules(
      exported_model("g (float[N,3] x, float[3] one_weight, float[3] one_bias) => (float[N,3] y) { "
                     "layer_norm = LayerNormalization<axis = -1, epsilon = 0.001>(x, one_weight, one_bias) "
                     "r = Relu(layer_norm) s = Sigmoid(layer_norm) y = Mul(r, s) }",
                     {{"layer_norm", kNorm},
                      {"r", taken_by("relu.default", "%layer_norm")},
                      {"s", taken_by("sigmoid.default", taken)},
                      {"y", taken_by("mul.Tensor", "%r, %s")}},
                     parameters));
  return with_notes(model, notes);
}

Result<Imported> import_norms(const std::vector<std::string>& more, const std::string& taken = "%layer_norm_1",
                              const std::string& rules = "") {
  return import_noted(two_norms(more, taken), {}, rules);
}

const std::set<std::string> kBoth = {"a.one.weight", "a.one.bias", "a.two.weight", "a.two.bias"};

/// y = cat([cls, dist, x], 1), whose tokens began alike, with a fixed batch.
Result<Imported> two_tokens(const std::vector<std::string>& parameters, const std::string& taken,
                            const std::vector<float>& elements = std::vector<float>(12, 0)) {
  return import_noted(
      exported_model("g (float[4,2,3] x, float[4,1,3] expand) => (float y) { cat = Concat<axis = 1>(expand, expand, x) "
                     "y = Relu(cat) }",
                     {{"cat", taken_by("cat.default", taken)}}, parameters),
      {{{"expand", "['m.cls_token', 'val_1', 'val_2']"}}, {{"expand", elements}}, {}});
}

/// y = cat([cls, x], 1) * cat([cls, x], 1): a module with a token that is applied twice, on these lines.
Result<Imported> token_applied_twice(int first, int second) {
  return import_noted(
      exported_model(
          "g (float[4,2,3] x, float[4,1,3] expand) => (float y) { p = Concat<axis = 1>(expand, x) "
          "q = Concat<axis = 1>(expand, x) y = Mul(p, q) }",
          {{"p", taken_by("cat.default", "[%expand, %x], 1")}, {"q", taken_by("cat.default", "[%expand_1, %x], 1")}},
          {"m.cls_token", "m.mask_token"}),
      {{{"expand", "['m.cls_token', 'val_1', 'val_2']"}},
       {{"expand", std::vector<float>(12, 0)}},
       {{"p", {"m", line(first)}}, {"q", {"m", line(second)}}}});
}

/// The same where the second is of another module, and read by its code.
Result<Imported> token_of_another_module(const std::vector<std::string>& parameters) {
  return import_noted(
      exported_model(
          "g (float[4,2,3] x, float[4,1,3] expand) => (float y) { p = Concat<axis = 1>(expand, x) "
          "q = Concat<axis = 1>(expand, x) y = Mul(p, q) }",
          {{"p", taken_by("cat.default", "[%expand, %x], 1")}, {"q", taken_by("cat.default", "[%expand_1, %x], 1")}},
          parameters),
      {{{"expand", "['m.a.cls_token', 'val_1', 'val_2']"}},
       {{"expand", std::vector<float>(12, 0)}},
       {{"p", {"m.a", line(1)}}, {"q", {"m.b", line(2)}}}});
}

}  // namespace

TEST_CASE("a norm that was merged with another of the same input is there again") {
  const auto imported = import_norms({"a.two.weight", "a.two.bias"});
  REQUIRE(imported.ok());
  CHECK(ir::verify_graph(imported->graph).ok());
  CHECK(trained(imported) == kBoth);
  CHECK(count_ops(imported->graph, "LayerNormalization") == 2);
  CHECK(reports(imported->notes, Code::kLostByExport, "taken to be computed from 'a.two.bias', 'a.two.weight'"));
  CHECK(reports(imported->notes, Code::kLostByExport, "not a second use of the other"));
  CHECK(reports(imported->notes, Code::kLostByExport, "graphpipe.export"));
  for (const Diagnostic& note : imported->notes)
    CHECK(to_line(note).find("under the names of the module") == std::string::npos);
}

TEST_CASE("a norm that is applied twice is none that was merged with one which is not used") {
  const std::vector<std::string> more = {"a.two.weight", "a.two.bias"};
  Notes drawn = begun(), trained_bias = begun(), on_one_line = begun(), without_lines = begun();
  drawn.elements["a.one.weight"] = {1, 2, 3};
  trained_bias.elements["a.one.bias"] = {0, 0, 1};
  on_one_line.places["s"] = on_one_line.places["r"];
  without_lines.places.clear();
  for (const Notes& notes : {drawn, trained_bias, on_one_line, without_lines})
    CHECK(is_refused(import_noted(two_norms(more, "%layer_norm_1", notes), {})));
  // On the same line of different modules.
  Notes in_modules = begun();
  in_modules.places = {{"r", {"a.r", line(1)}}, {"s", {"a.s", line(1)}}};
  CHECK(trained(import_noted(two_norms(more, "%layer_norm_1", in_modules), {})) == kBoth);
}

TEST_CASE("a norm that may be of several modules, or of none, stays merged") {
  const std::vector<std::string> two = {"a.two.weight", "a.two.bias"};
  std::vector<std::string> three = two;
  three.insert(three.end(), {"a.three.weight", "a.three.bias"});
  CHECK(is_refused(import_norms(three)));
  CHECK(is_refused(import_norms({"b.two.weight", "b.two.bias"})));  // not beside the first
  CHECK(is_refused(import_norms({"a.two.weight"})));
  CHECK(is_refused(import_norms({"a.two.weight", "buffer a.two.bias"})));
  CHECK(import_norms(two, "%layer_norm").value().parameters.size() == 2);  // a module that is not used
  const auto tied = import_norms(two, "%layer_norm_1", "a.two.* tie a.one.*");
  CHECK((!tied.ok() || trained(tied).size() == 2));
}

TEST_CASE("of two merged norms each may be either's") {
  const std::string model =
      with_modules(exported_model("g (float[N,3] x, float[3] one_weight, float[3] one_bias) => (float[N,3] y) { "
                                  "layer_norm = LayerNormalization(x, one_weight, one_bias) "
                                  "r = Relu(layer_norm) s = Sigmoid(layer_norm) y = Mul(r, s) }",
                                  {{"layer_norm", kNorm},
                                   {"r", taken_by("relu.default", "%layer_norm_2")},
                                   {"s", taken_by("sigmoid.default", "%layer_norm_1")},
                                   {"y", taken_by("mul.Tensor", "%r, %s")}},
                                  {"a.one.weight", "a.one.bias", "a.two.weight", "a.two.bias"}));
  CHECK(is_refused(import_noted(model, begun())));
}

TEST_CASE("a token that was merged with another is there again") {
  const std::string taken = "[%expand, %expand_1, %x], 1";
  const auto imported = two_tokens({"m.cls_token", "m.dist_token", "m.head.weight"}, taken);
  REQUIRE(imported.ok());
  CHECK(trained(imported) == std::set<std::string>{"m.cls_token", "m.dist_token"});
  CHECK(shape(imported->graph, "m.dist_token") == "1 1 3 ");
  CHECK(reports(imported->notes, Code::kLostByExport, "taken to be computed from 'm.dist_token'"));
  CHECK(is_refused(two_tokens({"m.cls_token", "m.dist_token", "m.mask_token"}, taken)));
  CHECK(is_refused(two_tokens({"m.cls_token", "o.p.dist_token"}, taken)));
  CHECK(is_refused(two_tokens({"m.cls_token", "m.dist_token"}, "[%expand, %expand_1, %expand_2, %x], 1")));
}

TEST_CASE("a token that was drawn, or whose module is applied twice, is read twice") {
  const std::vector<float> drawn = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3};
  CHECK(is_refused(two_tokens({"m.cls_token", "m.dist_token"}, "[%expand, %expand_1, %x], 1", drawn)));
  CHECK(is_refused(token_applied_twice(1, 1)));
  CHECK(token_applied_twice(1, 2).ok());
}

TEST_CASE("a token that the code of another module reads is that module's, not one beside the known one") {
  const std::vector<std::string> both = {"m.a.cls_token", "m.a.mask_token", "m.b.cls_token", "m.b.mask_token"};
  CHECK(trained(token_of_another_module(both)) == std::set<std::string>{"m.a.cls_token", "m.b.cls_token"});
  CHECK(trained(token_of_another_module({"m.a.cls_token", "m.a.mask_token", "m.b.token"})) ==
        std::set<std::string>{"m.a.cls_token", "m.b.token"});
  CHECK(is_refused(token_of_another_module({"m.a.cls_token", "m.a.mask_token", "m.b.one", "m.b.two"})));
}

TEST_CASE("a new file has both of two norms") {
  const TemporaryFolder folder;
  folder.write("model.onnx", two_norms({"a.two.weight", "a.two.bias"}));
  const std::string bytes(12, '\0');
  std::map<std::string, NewTensor> tensors;
  for (const std::string& name : kBoth) tensors[name] = {.dtype = ir::DType::kFloat32, .dims = {3}, .bytes = bytes};
  std::set<std::string> replaced;
  const auto written = export_onnx(folder / "model.onnx", "", ParameterRules(), tensors, replaced);
  REQUIRE(written.ok());
  CHECK(replaced == kBoth);
  const auto after = import_noted(*written, {});
  REQUIRE(after.ok());
  CHECK(trained(after) == kBoth);
  for (const ir::NodeId id : after->graph.node_ids())
    if (const ir::Node& node = after->graph.node(id); node.op == "LayerNormalization")
      CHECK(node.attributes.get_double("epsilon", 0) == doctest::Approx(0.001));
}
