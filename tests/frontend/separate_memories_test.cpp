// Attentions that read one memory have keys and values of their own again.

#include "frontend/separate_memories.h"

#include "ir/verify_graph.h"
#include "tests/support/count_ops.h"
#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// Two attentions to x that began alike, of queries and keys alone: the second reads the keys of the first, where its
/// call takes `taken`.
Result<Imported> decoder(const std::string& taken, const std::string& rules = "",
                         const std::string& second = "linear_2, linear_1", const std::string& module = "b") {
  const std::string body =
      "g (float[N,2] x, float[4,2] w, float[4] c) => (float[N,2] y) <int64[2] sizes = {2, 2}, float val_9 = {2}> { z = "
      "Mul(x, val_9) v, u = "
      "Split(w, sizes) p, q = Split(c, sizes) v_t = Transpose(v) u_t = Transpose(u) m = MatMul(z, v_t) linear = Add(m, "
      "p) h = MatMul(x, u_t) linear_1 = Add(h, q) mul = Mul(linear, linear_1) j = MatMul(mul, v_t) linear_2 = Add(j, "
      "p) y = Mul(" +
      second + ") }";
  const auto linear = [](const std::string& result, const std::string& input) {
    return result + "|" + taken_by("linear.default", input + ", %getitem, %getitem_2");
  };
  std::map<std::string, std::string> calls = {{"mul", taken_by("mul.Tensor", "%linear, %linear_1")},
                                              {"y", taken_by("mul.Tensor", "%linear_2, " + taken)}};
  for (const char* const node : {"v_t", "m", "linear"}) calls[node] = linear("linear", "%z");
  for (const char* const node : {"u_t", "h", "linear_1"}) calls[node] = linear("linear_1", "%x");
  for (const char* const node : {"j", "linear_2"}) calls[node] = linear("linear_2", "%mul");
  Notes notes;
  for (const char* const node : {"v_t", "m", "linear", "u_t", "h", "linear_1", "mul"}) notes.places[node] = {"a", "1"};
  for (const char* const node : {"j", "linear_2", "y"}) notes.places[node] = {module, "1"};
  graphpipe_onnx::ModelProto model;
  REQUIRE(model.ParseFromString(
      exported_model(body, calls, {"a.in_proj_weight", "a.in_proj_bias", "b.in_proj_weight", "b.in_proj_bias"})));
  const auto rename = [](std::string& name) {  // ONNX's text has no dots in names
    if (name == "w") name = "a.in_proj_weight";
    if (name == "c") name = "a.in_proj_bias";
  };
  for (auto& tensor : *model.mutable_graph()->mutable_initializer()) rename(*tensor.mutable_name());
  for (auto& node : *model.mutable_graph()->mutable_node())
    for (std::string& input : *node.mutable_input()) rename(input);
  return import_noted(model.SerializeAsString(), notes, rules);
}

}  // namespace

TEST_CASE("keys that were merged are computed from the parameters of each attention") {
  const auto imported = decoder("%linear_3");
  REQUIRE(imported.ok());
  CHECK(ir::verify_graph(imported->graph).ok());
  CHECK(trained(imported) ==
        std::set<std::string>{"a.in_proj_bias", "a.in_proj_weight", "b.in_proj_bias", "b.in_proj_weight"});
  CHECK(elements(imported->graph, "b.in_proj_weight") == elements(imported->graph, "a.in_proj_weight"));
  CHECK(count_ops(imported->graph, "MatMul") == 4);
  CHECK(count_ops(imported->graph, "Split") == 4);
}

TEST_CASE("what an attention takes from another one stays that one's") {
  CHECK(is_refused(decoder("%linear_1")));
  // A dropout that was left out: what it reads has another name, of another kind.
  CHECK(is_refused(decoder("%clone_3")));
  CHECK(is_refused(decoder("%linear_3", "", "linear_2, linear_1", "c")));
  CHECK(trained(decoder("%linear_3", "b.in_proj_weight tie a.in_proj_weight\nb.in_proj_bias tie a.in_proj_bias\n")) ==
        std::set<std::string>{"a.in_proj_bias", "a.in_proj_weight"});
}
