// PyTorch's default export takes small numbers that are added for zero.

#include "frontend/left_out_additions.h"

#include "tests/support/noted_models.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// h = x w and r = relu(h), and y of them by such a node, whose call takes these arguments.
bool warns(const std::string& node, const std::string& target, const std::string& arguments) {
  const std::map<std::string, std::string> calls = {{"h", taken_by("matmul.default", "%x, %p_w")},
                                                    {"r", taken_by("relu.default", "%h")},
                                                    {"add_1", taken_by("add.Tensor", "%r, %x")},
                                                    {"y", taken_by(target, arguments)}};
  const auto imported =
      import_noted(exported_model("g (float[N,2] x, float[2,2] w) => (float[N,2] y) { h = MatMul(x, w) r = Relu(h) "
                                  "add_1 = Add(r, x) k = Mul(add_1, h) " +
                                      node + " }",
                                  calls, {"w"}),
                   {});
  REQUIRE(imported.ok());
  return reports(imported->notes, Code::kLostByExport, "left out what the module adds");
}

}  // namespace

TEST_CASE("a divisor or a root whose call takes a sum that the file lacks is told of") {
  CHECK(warns("y = Div(h, r)", "div.Tensor", "%h, %add_9"));
  CHECK(warns("y = Sqrt(r)", "sqrt.default", "%add"));
  CHECK(warns("y = Log(r)", "log.default", "%add_12"));
}

TEST_CASE("what the file has, or lacks without harm, is not told of") {
  CHECK(!warns("y = Div(h, r)", "div.Tensor", "%h, %r"));
  CHECK(!warns("y = Div(h, add_1)", "div.Tensor", "%h, %add_1"));
  CHECK(!warns("y = Div(h, add_1)", "div.Tensor", "%h, %add_2"));  // two equal sums, of which it keeps one
  CHECK(!warns("y = Div(r, h)", "div.Tensor", "%add_9, %h"));
  CHECK(!warns("y = Mul(h, r)", "mul.Tensor", "%h, %add_9"));
  CHECK(!warns("y = Div(h, k)", "div.Tensor", "%h, %add_9"));  // its maker has no call
}
