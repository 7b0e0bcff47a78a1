// Norms without weights, whose statistics an exporter's optimiser puts where the weights would be.

#include <doctest/doctest.h>

#include "tests/support/exported_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// What the norms of the model read beside values, in the order of the nodes.
std::vector<std::string> operands_of_norms(const std::string& model) {
  ImportRequest request;
  request.spec.loss.kind = "mse";
  const auto imported = import_bytes(model, request);
  REQUIRE(imported.ok());
  const ir::Graph& graph = imported->graph;
  std::vector<std::string> operands;
  for (const ir::NodeId id : graph.node_ids())
    if (graph.node(id).op.starts_with("Batch"))
      for (const ir::ValueId input : graph.node(id).inputs)
        for (const ir::ParamId param : graph.param_ids())
          if (graph.param(param).value == input) operands.push_back(graph.param(param).name.raw());
  return operands;
}

std::string norm_call(const std::string& arguments) {
  return "batch_norm.default](args = (" + arguments + ", True, 0.1, 1e-05), kwargs = {})";
}

}  // namespace

TEST_CASE("a BatchNorm without weights is not scaled by its variances, which began as ones too") {
  const std::string model = exported_model(
      "g (float[N,4] x, float[4] variance, float[4] alpha, float[4] average) => (float[N,4] y) "
      "{ a = BatchNormalization<training_mode = 1>(x, variance, alpha, alpha, variance) y = Mul(a, alpha) }",
      {{"a", norm_call("%x, None, None, %b_average, %b_variance")},
       {"y", "mul.Tensor](args = (%a, %p_alpha), kwargs = {})"}},
      {"alpha", "buffer average", "buffer variance"});
  CHECK(operands_of_norms(model) ==
        std::vector<std::string>{"variance/constant", "alpha/constant", "average", "variance"});
}

TEST_CASE("a BatchNorm that is applied again has the running statistics of the module there too") {
  const std::string model = exported_model(
      "g (float[N,4] x, float[4] scale, float[4] bias, float[4] average, float[4] variance) => (float[N,4] y) "
      "{ a = BatchNormalization<training_mode = 1>(x, scale, bias, bias, scale) "
      "y = BatchNormalization<training_mode = 1>(a, scale, bias, bias, scale) }",
      {{"a", norm_call("%x, %p_scale, %p_bias, %b_average, %b_variance")},
       {"y", norm_call("%a, %p_scale, %p_bias, %getitem_3, %getitem_4")}},
      {"scale", "bias", "buffer average", "buffer variance"});
  const std::vector<std::string> one = {"scale", "bias", "average", "variance"};
  std::vector<std::string> both = one;
  both.insert(both.end(), one.begin(), one.end());
  CHECK(operands_of_norms(model) == both);
}

namespace {

/// "norm(tanh(norm(x))) * SCALE + SECOND(x)", of which the second norm has been merged with the first.
Result<Imported> merged_norm(const std::string& kind, const std::string& scale, std::vector<std::string> parameters) {
  const std::string op = kind == "layer" ? "LayerNormalization" : "InstanceNormalization";
  const auto call = [](const std::string& target, const std::string& arguments) {
    return target + "](args = (" + arguments + "), kwargs = {})";
  };
  const std::string first = kind + "_norm", second = kind + "_norm_1";
  ImportRequest request;
  request.spec.loss.kind = "mse";
  return import_bytes(exported_model("g (float[N,4,4] x, float[4] weight, float[4] bias) => (float[N,4,4] y) { " +
                                         first + " = " + op + "(x, weight, bias) t = Tanh(" + first + ") u = " + op +
                                         "(t, weight, bias) s = Mul(u, weight) y = Add(s, " + first + ") }",
                                     {{first, call(kind + "_norm.default", "%x, %p_weight, %p_bias")},
                                      {"t", call("tanh.default", "%" + first)},
                                      {"u", call(kind + "_norm.default", "%t, %p_weight, %p_bias")},
                                      {"s", call("mul.Tensor", "%u, %p_" + scale)},
                                      {"y", call("add.Tensor", "%s, %" + second)}},
                                     std::move(parameters)),
                      request);
}

}  // namespace

TEST_CASE("a merged InstanceNorm may have had no weights, which is warned of") {
  const auto imported = merged_norm("instance", "weight", {"weight", "bias"});
  REQUIRE(imported.ok());
  CHECK(reports(imported->notes, Code::kLostByExport, "'instance_norm_1': the exporter's optimiser has merged this"));
  CHECK(reports(imported->notes, Code::kLostByExport, "may be one without weights"));
}

TEST_CASE("a merged norm was another's where that has one parameter of which nothing is known, and an equal one") {
  CHECK(merged_norm("layer", "weight", {"weight", "bias"}).ok());
  CHECK(merged_norm("layer", "m.weight", {"weight", "bias", "m.weight"}).ok());
  const auto refused = merged_norm("layer", "m.weight", {"weight", "bias", "m.weight", "m.bias"});
  REQUIRE_FALSE(refused.ok());
  CHECK(reports(refused.problems(), Code::kLostByExport, "merged the layer of 'layer_norm_1'"));
}
