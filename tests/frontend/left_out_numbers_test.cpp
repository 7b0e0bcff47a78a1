// Parameters of one number that an exporter's optimiser has left out, by what stands in the place of the results.

#include "frontend/left_out_numbers.h"

#include <doctest/doctest.h>

#include "support/text.h"

using namespace graphpipe::frontend;
using graphpipe::text;

namespace {

OnnxNode node(const std::string& module, const std::string& result, const std::string& target,
              const std::string& arguments, const std::vector<std::string>& inputs) {
  OnnxNode made;
  made.op = "Add";
  made.module = module;
  made.inputs = inputs;
  made.outputs = {result};
  made.exported_from = text("%", result, " : [num_users=1] = call_function[target=torch.ops.aten.", target,
                            "](args = (", arguments, "), kwargs = {})");
  return made;
}

/// The parameter that is found in a body of these nodes, which begins with the input "x" and returns "out".
std::string left_out(const std::vector<OnnxNode>& nodes, const std::set<std::string>& parameters,
                     const ExportSignature& signature = {}) {
  GraphBody body;
  body.inputs = {ValueInfo{.name = "x"}};
  body.outputs = {ValueInfo{.name = "out"}};
  body.nodes = nodes;
  std::set<std::string> made = {"x"};
  for (const OnnxNode& each : nodes) made.insert(each.outputs[0]);
  const auto found =
      left_out_number(body, signature, parameters, [&](const std::string& name) { return made.contains(name); });
  return found ? found->parameter : "";
}

const OnnxNode kLinear = node("net.fc", "linear", "linear.default", "%x, %p_w", {"x", "w"});
/// Of "tanh(g * fc(x))" in the module "net".
const OnnxNode kTanh = node("net", "tanh", "tanh.default", "%mul", {"linear"});

}  // namespace

TEST_CASE("a node that reads another value in the place of a product that nothing makes tells of a parameter") {
  CHECK(left_out({kLinear, kTanh}, {"net.g"}) == "net.g");
  CHECK(left_out({kLinear, kTanh}, {"net.scale.gamma"}) == "net.scale.gamma");
  CHECK(left_out({kLinear, kTanh}, {"net.gains.0"}) == "net.gains.0");
  CHECK(left_out({kLinear, node("net", "mul", "mul.Tensor", "%linear, 2.0", {"linear", "two"}), kTanh}, {"net.g"})
            .empty());
  CHECK(left_out({kLinear, node("net", "tanh", "tanh.default", "%view", {"linear"})}, {"net.g"}).empty());
}

TEST_CASE("what a node reads twice and its call takes once stands in the place of the other") {
  CHECK(left_out({kLinear, node("net", "add", "add.Tensor", "%mul, %linear", {"linear", "linear"})}, {"net.g"}) ==
        "net.g");
  CHECK(left_out({kLinear, node("net", "add", "add.Tensor", "%mul, %linear", {"w", "linear"})}, {"net.g"}).empty());
}

TEST_CASE("parameters of modules that no value passes between the two, and those of layers, were not read") {
  CHECK(left_out({kLinear, kTanh}, {"other.g"}).empty());
  CHECK(left_out({kLinear, kTanh}, {"g"}).empty());
  CHECK(left_out({kLinear, kTanh}, {"network.g"}).empty());
  CHECK(left_out({kLinear, kTanh}, {"net.norm.weight"}).empty());
  ExportSignature signature;
  signature.is_parameter = {{"net.norm.weight", true}, {"net.norm.bias", true}};
  CHECK(left_out({kLinear, kTanh}, {"net.norm.bias"}, signature).empty());
  CHECK(left_out({kLinear, kTanh}, {"net.shift.bias"}, signature) == "net.shift.bias");
}

TEST_CASE("a module around the reader may pass its number on where its code names it") {
  OnnxNode reader = node("net.block", "tanh", "tanh.default", "%mul", {"linear"});
  const OnnxNode linear = node("net.block.fc", "linear", "linear.default", "%x, %p_w", {"x", "w"});
  CHECK(left_out({linear, reader}, {"net.g"}).empty());
  reader.callers = "return self.block(x, self.g)\n";
  CHECK(left_out({linear, reader}, {"net.g"}) == "net.g");
  CHECK(left_out({linear, reader}, {"g"}) == "g");
  CHECK(left_out({linear, reader}, {"net.h"}).empty());
  CHECK(left_out({linear, reader}, {"other.g"}).empty());
  reader.callers = "x = self.block(x, self.gains[i])\n";
  CHECK(left_out({linear, reader}, {"net.gains.0", "net.gains.1"}) == "net.gains.0");
  CHECK(left_out({linear, reader}, {"net.gainsay"}).empty());
}

TEST_CASE("a buffer beside it of which nothing is known may have been the number") {
  ExportSignature signature;
  signature.is_parameter = {{"net.g", true}, {"net.scale", false}};
  CHECK(left_out({kLinear, kTanh}, {"net.g"}, signature).empty());
  signature.is_parameter = {{"net.g", true}, {"net.num_batches_tracked", false}, {"other.scale", false}};
  CHECK(left_out({kLinear, kTanh}, {"net.g"}, signature) == "net.g");
}

TEST_CASE("a module with more of them than calls that are left out does not use them all") {
  CHECK(left_out({kLinear, kTanh}, {"net.g", "net.h"}).empty());
  const OnnxNode sine = node("net", "sin", "sin.default", "%mul_2", {"tanh"});
  CHECK(left_out({kLinear, kTanh, sine}, {"net.g", "net.h"}) == "net.g");
  CHECK(left_out({kLinear, kTanh}, {"net.a.g", "net.b.g"}) == "net.a.g");
}

TEST_CASE("a sum that is divided by, or has a root taken of, may have been one with a number near zero") {
  const auto read_by = [](const std::string& op, const std::string& value) {
    OnnxNode reader = node("net", "y", "div.Tensor", "%x, %" + value, {"x", "linear"});
    reader.op = op;
    return left_out({kLinear, reader}, {"net.g"});
  };
  for (const char* op : {"Div", "Sqrt", "Log"}) CHECK(read_by(op, "add").empty());
  CHECK(read_by("Div", "mul") == "net.g");
  CHECK(read_by("Tanh", "add") == "net.g");
}

TEST_CASE("the first sum of Python's sum() is one with 0, and tells of no parameter") {
  const OnnxNode first = node("net", "mean", "mean.default", "%linear", {"linear"});
  const OnnxNode second = node("net", "mean_1", "mean.default", "%tanh", {"linear"});
  const auto summed_by = [&](const std::string& line, const std::string& arguments) {
    OnnxNode sum = node("net", "add_1", "add.Tensor", arguments, {"mean", "mean_1"});
    sum.code = text("\"m.py\", line 4, in forward\n    ", line);
    return left_out({kLinear, first, second, sum}, {"net.g"});
  };
  CHECK(summed_by("return sum([a, b])", "%add, %mean_1").empty());
  CHECK(summed_by("loss = c * sum(", "%add, %mean_1").empty());
  CHECK(summed_by("return a + g + b", "%add, %mean_1") == "net.g");
  CHECK(summed_by("return (a + g + b).sum()", "%add, %mean_1") == "net.g");
  CHECK(summed_by("return torch.sum(a + g + b)", "%add, %mean_1") == "net.g");
  CHECK(summed_by("return checksum(a + g, b)", "%add, %mean_1") == "net.g");
  // What is added to the second summand is left out as well, or the first one is a product.
  CHECK(summed_by("return sum([a, b])", "%add, %add_2") == "net.g");
  CHECK(summed_by("return sum([a, b])", "%mul, %mean_1") == "net.g");
}

TEST_CASE("of two equal products the one that is left is taken by its own name, too") {
  const OnnxNode product = node("net", "mul", "mul.Tensor", "%linear, %p_s", {"linear", "s"});
  const OnnxNode sine = node("net", "sin", "sin.default", "%mul", {"mul"});
  const OnnxNode tanh = node("net", "tanh", "tanh.default", "%mul_1", {"mul"});
  CHECK(left_out({kLinear, product, sine, tanh}, {"net.g"}).empty());
  CHECK(left_out({kLinear, product, tanh}, {"net.g"}) == "net.g");
}

TEST_CASE("what the module returns may be left out as well") {
  ExportSignature signature;
  signature.outputs = {"mul_3"};
  const OnnxNode last = node("net", "out", "mean.dim", "%linear, [1]", {"linear"});
  CHECK(left_out({kLinear, last}, {"g"}, signature) == "g");
  signature.outputs = {"mean"};
  CHECK(left_out({kLinear, last}, {"g"}, signature).empty());
  signature.outputs = {"mul_3", "mul_4"};
  CHECK(left_out({kLinear, last}, {"g"}, signature).empty());
}
