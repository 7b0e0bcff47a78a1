// Parameters that the code of a node names, and that an exporter's optimiser has left out.

#include "frontend/left_out_in_code.h"

#include <doctest/doctest.h>

using namespace graphpipe::frontend;

namespace {

/// The parameter that is found for an addition to "mul", in this line of the module "block", if any.
std::string left_out(const std::string& line, const std::set<std::string>& parameters, bool is_made = false) {
  OnnxNode node;
  node.op = "Add";
  node.module = "block";
  node.code = "File \"model.py\", line 7, in forward\n    " + line;
  node.exported_from =
      "%add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%x, %mul), kwargs = {})";
  GraphBody body;
  body.nodes = {node};
  const auto found =
      left_out_in_code(body, {}, parameters, [&](const std::string& name) { return name == "x" || is_made; });
  return found ? found->parameter : "";
}

}  // namespace

TEST_CASE("a line whose node takes a value that nothing makes names the parameter that made it") {
  CHECK(left_out("x = x + self.gain[0] * y", {"block.gain"}) == "block.gain");
  CHECK(left_out("x = x + self.gain[0] * y", {"block.gain", "gain"}) == "block.gain");
  CHECK(left_out("x = x + self.gains[i] * y", {"block.gain", "block.gains.1"}) == "block.gains.1");
  CHECK(left_out("x = x + self.gain[0] * y", {"block.gain"}, true).empty());
}

TEST_CASE("other modules' parameters, sizes and types, and lines that choose tell nothing") {
  CHECK(left_out("x = x + self.gain[0] * y", {"gain", "other.gain", "block.gain.weight", "block.gains"}).empty());
  CHECK(left_out("x = x + y.to(self.gain.dtype)", {"block.gain"}).empty());
  CHECK(left_out("x = x + (self.gain if self.scales else self.other)", {"block.gain"}).empty());
  CHECK(left_out("x = x + y", {"block.gain"}).empty());
}
