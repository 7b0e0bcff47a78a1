// Attentions whose projections an exporter's optimiser has merged get parameters of their own back.

#include "frontend/restore_split.h"

#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

std::string linear(const std::string& result, const std::string& input) {
  return result + "|" + taken_by("linear.default", input + ", %getitem, %getitem_2");
}

/// The text has "a_weight" for the name "a.in_proj_weight", since ONNX's has no dots in names.
std::string with_dots(const std::string& bytes) {
  graphpipe_onnx::ModelProto model;
  REQUIRE(model.ParseFromString(bytes));
  const auto rename = [](std::string& name) {
    if (name.starts_with("a_") || name.starts_with("b_")) name = name.substr(0, 1) + ".in_proj_" + name.substr(2);
  };
  for (auto& tensor : *model.mutable_graph()->mutable_initializer()) rename(*tensor.mutable_name());
  for (auto& node : *model.mutable_graph()->mutable_node())
    for (std::string& input : *node.mutable_input()) rename(input);
  return model.SerializeAsString();
}

/// The queries and keys of two attentions, of which the second reads parts of the first one's tensors: these.
Result<Imported> attentions(const std::string& weights, const std::string& query, const std::string& key,
                            const std::string& rules = "") {
  const std::string body =
      "g (float[N,2] x, float[4,2] a_weight, float[4] a_bias, float[4,2] b_weight) => (float[N,2] y) <int64[2] sizes = "
      "{2, 2}, float val_9 = {2}> { z = Mul(x, val_9) v, w = Split(a_weight, sizes) p, q = Split(a_bias, sizes) " +
      weights +
      " v_t = Transpose(v) w_t = Transpose(w) m = MatMul(z, v_t) n = Add(m, p) h = MatMul(n, w_t) i = Add(h, q) " +
      query + " " + key + " }";
  std::map<std::string, std::string> calls;
  Notes notes;
  for (const char* const node : {"v_t", "m", "n"}) calls[node] = linear("linear", "%x");
  for (const char* const node : {"w_t", "h", "i"}) calls[node] = linear("linear_1", "%linear");
  for (const char* const node : {"r_t", "j", "k"}) calls[node] = linear("linear_2", "%linear_1");
  for (const char* const node : {"u_t", "l", "y"}) calls[node] = linear("linear_3", "%linear_2");
  for (const char* const node : {"v_t", "m", "n", "w_t", "h", "i"}) notes.places[node] = {"a", "1"};
  for (const char* const node : {"r_t", "j", "k", "u_t", "l", "y"}) notes.places[node] = {"b", "1"};
  const std::vector<std::string> parameters = {"a.in_proj_weight", "a.in_proj_bias", "b.in_proj_weight",
                                               "b.in_proj_bias"};
  return import_noted(with_dots(exported_model(body, calls, parameters)), notes, rules);
}

const char* const kOwnWeights = "r, u = Split(b_weight, sizes) r_t = Transpose(r) u_t = Transpose(u)";

}  // namespace

TEST_CASE("biases that began as zeros are those of the modules that read them") {
  const auto imported = attentions(kOwnWeights, "j = MatMul(i, r_t) k = Add(j, p)", "l = MatMul(k, u_t) y = Add(l, q)");
  REQUIRE(imported.ok());
  CHECK(trained(imported) ==
        std::set<std::string>{"a.in_proj_bias", "a.in_proj_weight", "b.in_proj_bias", "b.in_proj_weight"});
  CHECK(shape(imported->graph, "b.in_proj_bias") == "4 ");
  CHECK(elements(imported->graph, "b.in_proj_bias") == elements(imported->graph, "a.in_proj_bias"));
}

TEST_CASE("so are weights of layers that were copied, through the transposes that products read") {
  const auto imported = attentions("", "j = MatMul(i, v_t) k = Add(j, p)", "l = MatMul(k, w_t) y = Add(l, q)");
  REQUIRE(imported.ok());
  CHECK(trained(imported).size() == 4);
  CHECK(elements(imported->graph, "b.in_proj_weight") == elements(imported->graph, "a.in_proj_weight"));
}

TEST_CASE("rules that tie the two are followed") {
  const auto imported = attentions(kOwnWeights, "j = MatMul(i, r_t) k = Add(j, p)", "l = MatMul(k, u_t) y = Add(l, q)",
                                   "b.in_proj_bias tie a.in_proj_bias\n");
  REQUIRE(imported.ok());
  CHECK(trained(imported).size() == 3);
}

TEST_CASE("a module that reads some parts alone, since a product was merged as well, is refused") {
  const auto refused = attentions(kOwnWeights, "j = MatMul(i, r_t) k = Add(j, p)", "l = MatMul(k, u_t) y = Add(l, i)");
  CHECK(is_refused(refused));
  CHECK(reports(refused.problems(), Code::kLostByExport, "splits 'a.in_proj_bias' in its place"));
}
