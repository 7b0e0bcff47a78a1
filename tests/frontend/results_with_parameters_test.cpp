// Which results of calls a merged one may have been computed as, with another parameter.

#include "frontend/results_with_parameters.h"

#include <doctest/doctest.h>

using namespace graphpipe::frontend;

namespace {

OnnxNode node(const std::string& op, const std::vector<std::string>& inputs, const std::string& output,
              const std::string& target) {
  OnnxNode made;
  made.op = op;
  made.inputs = inputs;
  made.outputs = {output};
  made.exported_from = "%" + output + " : [num_users=1] = call_function[target=torch.ops.aten." + target +
                       "](args = (%x, %p_a), kwargs = {})";
  return made;
}

}  // namespace

TEST_CASE("a node of two tensors, one of them a parameter, has results of its kind") {
  const std::pair<const char*, const char*> kinds[] = {{"Add", "add"},     {"Div", "div"},    {"Max", "maximum"},
                                                       {"Min", "minimum"}, {"Mul", "mul"},    {"Pow", "pow"},
                                                       {"Sub", "sub"},     {"Where", "where"}};
  for (const auto& [op, kind] : kinds) {
    CAPTURE(op);
    const std::vector<OnnxNode> nodes = {node(op, {"x", "a"}, kind, std::string(kind) + ".Tensor"),
                                         node(op, {"x", "z"}, "other", std::string(kind) + ".Tensor")};
    CHECK(results_with_parameters(nodes, {"a"}) == ResultsByKind{{kind, {{kind, kind}}}});
  }
}

TEST_CASE("activations are followed, by the names of their calls, and other calls are not") {
  const std::vector<OnnxNode> nodes = {
      node("LayerNormalization", {"x", "a"}, "layer_norm", "layer_norm.default"),
      node("Relu", {"layer_norm"}, "relu", "relu.default"), node("Tanh", {"relu"}, "tanh", "tanh.default"),
      node("Neg", {"tanh"}, "neg", "neg.default"), node("Relu", {"neg"}, "relu_1", "relu.default")};
  CHECK(results_with_parameters(nodes, {"a"}) ==
        ResultsByKind{{"relu", {{"relu", "relu"}}}, {"tanh", {{"tanh", "tanh"}}}});
  CHECK(results_with_parameters(nodes, {}).empty());
}
