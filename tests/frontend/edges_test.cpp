// Results whose gradient at the edge of what they are defined on PyTorch computes otherwise than by the operators of
// the file.

#include "tests/support/exported_models.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::testing;

namespace {

std::string edge_nodes(const std::string& body, const std::map<std::string, std::string>& calls = {}) {
  return nodes_of(import_bytes(exported_model(body, calls, {}), {}));
}

}  // namespace

TEST_CASE("the root of a variance is flat where the variance is zero") {
  const std::string head = "g (float[N,3] x) => (float[N,1] y) <int64[1] last = {1}> { ";
  const std::string deviations =
      edge_nodes(head + "m = ReduceMean(x, last) c = Sub(x, m) s = Mul(c, c) v = ReduceMean(s, last) y = Sqrt(v) }");
  CAPTURE(deviations);
  CHECK(contains(deviations, "Where("));
  const std::string shaped = edge_nodes(
      "g (float[N,3] x) => (float[N,3] y) <int64[1] last = {1}, int64[2] column = {-1, 1}, int64[2] wide = {1, 3}> "
      "{ m = ReduceMean(x, last) c = Sub(x, m) s = Mul(c, c) v = ReduceMean<keepdims = 0>(s, last) "
      "k = Reshape(v, column) w = Expand(k, wide) y = Sqrt(w) }");
  CHECK(contains(shaped, "Where("));
  const std::string squares = edge_nodes(head + "s = Mul(x, x) v = ReduceMean(s, last) y = Sqrt(v) }");
  CHECK_FALSE(contains(squares, "Where("));
}

TEST_CASE("the norm of an order other than 1 and 2 is flat where all is zero") {
  const std::string body =
      "g (float[N,3] x) => (float[N,1] y) <int64[1] last = {1}, float order = {3}, float root = {0.3333}> "
      "{ a = Abs(x) r = Pow(a, order) s = ReduceSum(r, last) y = Pow(s, root) }";
  const std::string call = "linalg_vector_norm.default](args = (%x, 3, [-1]), kwargs = {})";
  const std::string norm = edge_nodes(body, {{"r", call}, {"y", call}});
  CAPTURE(norm);
  CHECK(contains(norm, "Where("));
  CHECK_FALSE(contains(edge_nodes(body), "Where("));
}

TEST_CASE("the cut logarithms of binary cross entropy have the gradient of PyTorch's kernel") {
  const std::string call = "maximum.default](args = (%log, %new_full_1), kwargs = {})";
  const auto cut_at = [&](int limit, const std::map<std::string, std::string>& calls) {
    return edge_nodes(
        text("g (float[N,3] p) => (float[N,3] y) <float cut = {", limit, "}> { l = Log(p) y = Max(l, cut) }"), calls);
  };
  const std::string entropy = cut_at(-100, {{"y", call}});
  CAPTURE(entropy);
  CHECK(contains(entropy, "Detach("));
  CHECK_FALSE(contains(cut_at(-100, {}), "Detach("));
  CHECK_FALSE(contains(cut_at(-10, {{"y", call}}), "Detach("));
}

TEST_CASE("what PyTorch calls hardtanh or relu6 has no gradient at its bounds, where clamp has one") {
  const auto clipped = [&](const std::string& operands, const std::string& call) {
    const std::string body = text("g (float[N,3] x) => (float[N,3] y) { low = Constant<value_float = -1.0>() ",
                                  "high = Constant<value_float = 6.0>() y = Clip(", operands, ") }");
    return edge_nodes(body, {{"y", call + ".default](args = (%x, -1.0, 6.0), kwargs = {})"}});
  };
  CHECK(clipped("x, low, high", "hardtanh").starts_with("HardTanh(%0) {max=6.0, min=-1.0}"));
  CHECK(clipped("x, low, high", "relu6").starts_with("HardTanh(%0) {max=6.0, min=-1.0}"));
  CHECK(clipped("x, low, high", "clamp").starts_with("Clip(%0) {max=6.0, min=-1.0}"));
  CHECK(clipped("x, low", "hardtanh").starts_with("Clip(%0) {min=-1.0}"));
}

TEST_CASE("torch.clamp with one bound has a gradient at it, where a maximum divides it") {
  const auto bounded = [&](const std::string& op, const std::string& call) {
    const std::string body =
        text("g (float[N,3] x) => (float[N,3] y) { bound = Constant<value_float = 2.0>() y = ", op, "(x, bound) }");
    return edge_nodes(body, {{"y", call + "](args = (%x, %bound), kwargs = {})"}});
  };
  CHECK(bounded("Max", "clamp.Tensor").starts_with("Clip(%0) {min=2.0}"));
  CHECK(bounded("Min", "clamp.Tensor").starts_with("Clip(%0) {max=2.0}"));
  CHECK(bounded("Max", "maximum.default").starts_with("Max("));
  CHECK(bounded("Min", "minimum.default").starts_with("Min("));
}

TEST_CASE("torch.clamp with bounds of several elements, or that are computed, passes all of the gradient at them") {
  const auto bounded = [&](const std::string& call) {
    return edge_nodes("g (float[N,3] x) => (float[N,3] y) { low = Neg(x) y = Max(x, low) }",
                      {{"y", call + "](args = (%x, %low), kwargs = {})"}});
  };
  CHECK(contains(bounded("clamp.Tensor"), "Less(%0, %1)"));
  CHECK(contains(bounded("clamp.Tensor"), "Where("));
  CHECK(contains(bounded("clamp_min.Tensor"), "Where("));
  CHECK(contains(bounded("maximum.default"), "Max("));
  const std::string several = edge_nodes(
      "g (float[N,3] x) => (float[N,3] y) { high = Constant<value_floats = [1.0, 2.0, 3.0]>() y = Min(x, high) }",
      {{"y", "clamp.Tensor](args = (%x, None, %high), kwargs = {})"}});
  CHECK(contains(several, "Greater("));
  CHECK(contains(several, "Where("));
}

TEST_CASE("torch.max along a dimension has the gradient of one element, amax of all that are equal") {
  const auto extremum = [&](const std::string& op, const std::string& call) {
    const std::string body =
        text("g (float[N,3] x) => (float[N] y) <int64[1] last = {1}> { y = ", op, "<keepdims = 0>(x, last) }");
    return edge_nodes(body, {{"y", call + "](args = (%x, 1), kwargs = {})"}});
  };
  CHECK(contains(extremum("ReduceMax", "max.dim"), "TopK(%0) {axis=1, k=1, largest=1}"));
  CHECK(contains(extremum("ReduceMin", "min.dim"), "TopK(%0) {axis=1, k=1, largest=0}"));
  CHECK(contains(extremum("ReduceMax", "amax.default"), "ReduceMax("));
}

TEST_CASE("softplus with PyTorch's default factor and threshold is one operator") {
  const auto made = [&](const std::string& arguments) {
    const std::string call = "softplus.default](args = (" + arguments + "), kwargs = {})";
    const std::string body =
        "g (float[N,3] x) => (float[N,3] y) { bound = Constant<value_float = 20.0>() s = Softplus(x) "
        "b = Greater(x, bound) y = Where(b, x, s) }";
    return edge_nodes(body, {{"s", call}, {"b", call}, {"y", call}});
  };
  CHECK_FALSE(contains(made("%x,"), "Where("));
  CHECK(contains(made("%x,"), "Softplus(%0)"));
  CHECK_FALSE(contains(made("%x, 1.0, 20.0"), "Where("));
  CHECK(contains(made("%x, 2.0, 10.0"), "Where("));
}

TEST_CASE("sinc divides by what is never zero, of which the quotient that is not taken would have no gradient") {
  const auto made = [&](const std::string& call) {
    const std::string body =
        "g (float[N,3] x) => (float[N,3] y) { pi = Constant<value_float = 3.14159274>() zero = "
        "Constant<value_float = 0.0>() one = Constant<value_float = 1.0>() p = Mul(x, pi) b = Equal(x, zero) s = "
        "Sin(p) q = Div(s, p) y = Where(b, one, q) }";
    return edge_nodes(body, {{"y", call + "](args = (%x,), kwargs = {})"}});
  };
  const std::string nodes = made("sinc.default");
  CHECK(nodes.find("Where(") != nodes.rfind("Where("));
  const std::string others = made("where.self");
  CHECK(others.find("Where(") == others.rfind("Where("));
}

TEST_CASE("the logarithm of a sigmoid that is its own call, or of a file without calls, does not underflow") {
  const auto made = [&](const std::map<std::string, std::string>& calls) {
    return edge_nodes("g (float[N,3] x) => (float[N,3] y) { s = Sigmoid(x) y = Log(s) }", calls);
  };
  const std::string call = "log_sigmoid.default](args = (%x,), kwargs = {})";
  CHECK(contains(made({{"s", call}, {"y", call}}), "Softplus("));
  CHECK_FALSE(contains(made({{"s", call}, {"y", call}}), "Log("));
  CHECK(contains(made({}), "Softplus("));
  CHECK(contains(
      made({{"s", "sigmoid.default](args = (%x,), kwargs = {})"}, {"y", "log.default](args = (%s,), kwargs = {})"}}),
      "Log("));
}

TEST_CASE("xlogy has its gradient where x is zero, and atan2 divides by the larger operand") {
  const std::string xlogy = "xlogy.Tensor](args = (%a, %b), kwargs = {})";
  const std::string product = edge_nodes(
      "g (float[N,2,3] x) => (float[N,3] y) { zero = Constant<value_float = 0.0>() axis = Constant<value_ints = [1]>() "
      "a "
      "= ReduceSum<keepdims = 0>(x, axis) b = ReduceMean<keepdims = 0>(x, axis) n = IsNaN(b) z = Equal(a, zero) l = "
      "Log(b) p = Mul(a, l) w = Where(n, b, p) y = Where(z, a, w) }",
      {{"n", xlogy}, {"z", xlogy}, {"l", xlogy}, {"p", xlogy}, {"w", xlogy}, {"y", xlogy}});
  CHECK(product.rfind("Mul(") > product.rfind("Where("));
  CHECK(contains(product, "LessOrEqual("));  // NaN, of which no comparison is true, is not replaced
  const std::string atan2 = "atan2.default](args = (%a, %b), kwargs = {})";
  const std::string angle = edge_nodes(
      "g (float[N,2,3] x) => (float[N,3] y) { zero = Constant<value_float = 0.0>() pi = Constant<value_float = 3.14>() "
      "axis = Constant<value_ints = [1]>() a = ReduceSum<keepdims = 0>(x, axis) b = ReduceMean<keepdims = 0>(x, axis) "
      "q = Div(a, b) t = Atan(q) g = Greater(a, zero) u = Add(t, pi) v = Sub(t, pi) c = Where(g, u, v) l = Less(b, "
      "zero) w = Where(l, c, t) n = IsNaN(w) y = Where(n, zero, w) }",
      {{"q", atan2}, {"t", atan2}, {"c", atan2}, {"w", atan2}, {"n", atan2}, {"y", atan2}});
  CHECK_FALSE(contains(angle, "IsNaN("));
  CHECK(contains(angle, "Abs("));
}
