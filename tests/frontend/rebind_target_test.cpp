// The batch in targets of Reshape that a file with a fixed batch holds.

#include "frontend/rebind_target.h"

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using namespace graphpipe::testing;

namespace {

/// The shape that s, which is x of 4 samples with its first two axes swapped, has as this target, after the nodes in
/// between.
std::string target_shape(const std::string& target, const std::string& between = "t = Identity(s)",
                         const std::string& input = "4,6,5") {
  const std::string list = target.substr(1, target.size() - 2);
  const Result<Imported> imported = import_text(
      "g (float[" + input + "] x) => (float[P] y) { s = Transpose<perm = [1, 0, 2]>(x) " + between +
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

namespace {

/// The shape of [4, 4, 5] behind nodes that make t of t0, the joined rows of 4 samples of 4 steps: these lie together
/// in the operand x, and apart in s.
std::string behind(const std::string& nodes, const std::string& operand) {
  return target_shape("[4, 4, 5]", "j = Constant<value_ints = [16, 5]>() t0 = Reshape(" + operand + ", j) " + nodes,
                      "4,4,5");
}

}  // namespace

TEST_CASE("rows keep their order behind nodes that take them one by one") {
  const std::string axis = "a = Constant<value_ints = [-1]>() ", first = "f = Constant<value_ints = [0]>() ";
  for (const std::string& nodes : {
           std::string("h0, h1 = Split<axis = 1, num_outputs = 2>(t0) t = Concat<axis = 1>(h0, h1)"),
           std::string("i = Constant<value_ints = [1, 0, 2, 4, 3]>() t = Gather<axis = 1>(t0, i)"),
           axis + first +
               "e = Constant<value_ints = [4]>() n = Constant<value_ints = [5]>() c = "
               "Slice(t0, f, e, a) d = Slice(t0, e, n, a) t = Concat<axis = 1>(d, c)",
           axis + "w = Constant<value_floats = [1.0]>() d = Constant<value_ints = [1, 1, 1]>() k = Reshape(w, d) "
                  "o = Constant<value_ints = [1]>() u = Unsqueeze(t0, o) c = Conv(u, k) m = MaxPool<kernel_shape = "
                  "[1]>(c) t = ReduceMean<keepdims = 0>(m, o)",
           std::string("w = Constant<value_floats = [1.0, 1.0, 1.0, 1.0, 1.0]>() n = LayerNormalization(t0, w) t = "
                       "Softmax(n)"),
           std::string("p = Constant<value_ints = [0, 1, 0, 0]>() q = Pad(t0, p) k = Constant<value_ints = [5]>() "
                       "d, e = TopK<axis = 1>(q, k) t = Mul(d, t0)"),
       }) {
    CAPTURE(nodes);
    CHECK(behind(nodes, "s") == "4 1B 5");
    CHECK(behind(nodes, "x") == "1B 4 5");
  }
  // However many there are.
  std::string many;
  for (int i = 0; i < 200; ++i) many += "t" + std::to_string(i + 1) + " = Tanh(t" + std::to_string(i) + ") ";
  CHECK(behind(many + "t = Identity(t200)", "s") == "4 1B 5");
}

TEST_CASE("a target is refused that may hold the batch on two axes") {
  // Rows of steps and rows of samples added up.
  const std::string both = "u0 = Reshape(x, j) t = Add(t0, u0)";
  CHECK(behind(both, "s") == "refused");
  CHECK(target_shape("[4, 6, 5]",
                     "j = Constant<value_ints = [24, 5]>() t0 = Reshape(s, j) u0 = Reshape(x, j) t = "
                     "Add(t0, u0)") == "1B 6 5");
  // Views of the same samples, one behind the other.
  CHECK(target_shape("[2, 2, 5]", "t = Concat<axis = 0>(x, x)", "2,1,5") == "2 1B 5");
}
