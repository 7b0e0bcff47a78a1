// Parameters that the code of a node names, and that an exporter's optimiser has left out.

#include "frontend/left_out_in_code.h"

#include <doctest/doctest.h>

using namespace graphpipe::frontend;

namespace {

/// The parameter that is found for an addition to this operand, in this line of the module "block", if any.
std::string left_out(const std::string& line, const std::set<std::string>& parameters, bool is_made = false,
                     const std::string& operand = "%mul") {
  OnnxNode node;
  node.op = "Add";
  node.module = "block";
  node.code = "File \"model.py\", line 7, in forward\n    " + line;
  node.exported_from = "%add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%x, " + operand +
                       "), kwargs = {})";
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
  CHECK(left_out("x = x.to(self.g.dtype) + self.gain * y", {"block.g"}).empty());
  CHECK(left_out("x = x + y / len(self.gains)", {"block.gains.0", "block.gains.1"}).empty());
  CHECK(left_out("x = x + y / self.gain[0].shape[-1]", {"block.gain"}).empty());
  CHECK(left_out("x = x + self.gain.new_zeros(4)", {"block.gain"}).empty());
  CHECK(left_out("x = x + torch.zeros_like(self.gain)", {"block.gain"}).empty());
  CHECK(left_out("x = x.to(self.gain.dtype) + self.gain * y", {"block.gain"}) == "block.gain");
}

TEST_CASE("a part of a split, which nodes know by another name, is not left out") {
  CHECK(left_out("x = torch.cat([a, b]) @ self.tied", {"block.tied"}, false, "%getitem_1").empty());
}

TEST_CASE("members of members without an end take no quadratic memory") {
  std::string chain = "x = x + self.gain";
  for (int i = 0; i < 200'000; ++i) chain += ".a";
  CHECK(left_out(chain, {"block.gain"}) == "block.gain");
  CHECK(left_out(chain, {"block.other"}).empty());
}
