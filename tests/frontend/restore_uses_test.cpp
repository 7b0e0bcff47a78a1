// Parameters that several calls take, after an exporter's optimiser has given them another's tensor.

#include <doctest/doctest.h>

#include <set>

#include "tests/support/exported_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

TEST_CASE("a parameter that has another's tensor is given back to every call that takes it") {
  ImportRequest request;
  request.spec.loss.kind = "mse";
  const auto imported =
      import_bytes(exported_model("g (float[N,4] x, float[4] begin) => (float[N,4] y) "
                                  "{ a = Add(x, begin) b = Mul(a, begin) c = Sub(b, begin) y = Mul(c, begin) }",
                                  {{"a", "add.Tensor](args = (%x, %p_begin), kwargs = {})"},
                                   {"b", "mul.Tensor](args = (%a, %p_end), kwargs = {})"},
                                   {"c", "sub.Tensor](args = (%b, %p_end), kwargs = {})"},
                                   {"y", "mul.Tensor](args = (%c, %p_end), kwargs = {})"}},
                                  {"begin", "end"}),
                   request);
  REQUIRE(imported.ok());
  std::multiset<std::string> read;
  for (const ir::NodeId id : imported->graph.node_ids())
    for (const ir::ParamId param : imported->graph.param_ids())
      if (const auto& inputs = imported->graph.node(id).inputs;
          std::ranges::find(inputs, imported->graph.param(param).value) != inputs.end())
        read.insert(imported->graph.param(param).name.raw());
  CHECK(read == std::multiset<std::string>{"begin", "end", "end", "end"});
}
