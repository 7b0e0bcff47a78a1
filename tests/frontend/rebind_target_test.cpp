// The batch in targets of Reshape that a file with a fixed batch holds.

#include "frontend/rebind_target.h"

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// The shape that x [6, 4, 5], of 4 samples, has as this target, after the nodes in between.
std::string target_shape(const std::string& target, const std::string& between = "t = Identity(s)") {
  const std::string list = target.substr(1, target.size() - 2);
  const Result<Imported> imported = import_text(
      "g (float[4,6,5] x) => (float[P] y) { s = Transpose<perm = [1, 0, 2]>(x) " + between +
      " to = Constant<value_ints = [" + list + "]>() [last] r = Reshape(t, to) y = Identity(r) z = Shape(x) }");
  if (!imported.ok()) return reports(imported.problems(), Code::kBatchNotFound, "'last'") ? "refused" : "other";
  const ir::Graph& graph = imported->graph;
  std::string text;
  for (const ir::Dim dim : graph.value(graph.outputs()[0].value).type.shape)
    text +=
        (text.empty() ? "" : " ") + (dim.is_fixed() ? std::to_string(dim.factor) : std::to_string(dim.factor) + "B");
  return text;
}

}  // namespace

TEST_CASE("the axis of a target has the batch that takes its steps") {
  CHECK(target_shape("[6, 4, 5]") == "6 1B 5");
  CHECK(target_shape("[6, 1, 4, 5]") == "6 1 1B 5");
  CHECK(target_shape("[6, 20]") == "6 5B");
  CHECK(target_shape("[24, 5]") == "6B 5");
  CHECK(target_shape("[24, -1]") == "6B 5");
  CHECK(target_shape("[2, 12, 5]") == "2 3B 5");
  CHECK(target_shape("[120]") == "30B");
  CHECK(target_shape("[4, 6, 5]") == "refused");
  CHECK(target_shape("[-1, 8, 5]") == "3 2B 5");
}

TEST_CASE("rows of samples that lie side by side are told from those that lie together by the nodes before them") {
  const std::string joined = "to0 = Constant<value_ints = [24, 5]>() ";
  CHECK(target_shape("[6, 4, 5]", joined + "t0 = Reshape(s, to0) t = Relu(t0)") == "6 1B 5");
  CHECK(target_shape("[6, 4, 5]", joined +
                                      "t0 = Reshape(s, to0) w = Constant<value_floats = [1.0, 1.0, 1.0, 1.0, 1.0]>() "
                                      "t1 = Add(t0, w) t = Softmax(t1)") == "6 1B 5");
  CHECK(target_shape("[4, 6, 5]", joined + "t = Reshape(x, to0)") == "1B 6 5");
  // Of what has been turned, the order of the rows is that of before.
  CHECK(target_shape("[5, 6, 4]", joined + "t0 = Reshape(s, to0) t = Transpose<perm = [1, 0]>(t0)") == "5 6 1B");
  CHECK(target_shape("[5, 4, 6]", joined + "t0 = Reshape(x, to0) t = Transpose<perm = [1, 0]>(t0)") == "5 1B 6");
}
