// Layers that an exporter's optimiser has merged with another of the same input.

#include "frontend/twin_layers.h"

#include <doctest/doctest.h>

#include "support/deadline.h"
#include "support/text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;

TEST_CASE("many merged layers beside many modules of which nothing is known take little time") {
  constexpr int kMany = 1500;
  GraphBody body;
  for (int i = 0; i < kMany; ++i) body.initializers.emplace_back().name = text("constant_", i);
  for (const char* name : {"n.weight", "n.bias"}) body.initializers.emplace_back().name = name;
  ExportSignature signature;
  signature.is_parameter = {{"n.weight", true}, {"n.bias", true}};
  signature.tensor_of_input = {{"p_n_weight", "n.weight"}, {"p_n_bias", "n.bias"}};
  std::vector<std::string> unknown;
  for (int i = 0; i < kMany; ++i) unknown.push_back(text("q", i, ".weight"));
  OnnxNode norm, relu;
  relu.inputs = {"layer_norm"};
  TwinLayers twins(body, signature);
  twins.read({.result = "layer_norm", .values = {"%x", "%p_n_weight", "%p_n_bias"}}, {&norm});
  const Deadline deadline(8, nullptr);
  for (int i = 1; i < kMany && !deadline.passed(); ++i) {
    const std::string lost = text("layer_norm_", i);
    twins.read({.result = text("relu_", i), .values = {"%" + lost}}, {&relu});
    CHECK(twins.is_applied_again(lost, {{"weight", unknown}}));
  }
  CHECK_FALSE(deadline.passed());
}
