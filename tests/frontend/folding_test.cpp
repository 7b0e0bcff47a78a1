// What is folded while importing gives what running would, and is left alone where it cannot.

#include "tests/support/count_ops.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::count_ops;
using graphpipe::testing::import_text;
using graphpipe::testing::reports;

TEST_CASE("an input that is given and not known is not taken for absent") {
  const auto imported = import_text(R"(g (float[N,4] x, int64 k) => (float[N,4] y) {
    shape = Constant<value_ints = [4, 4]>()
    ones = ConstantOfShape<value = float[1] {1}>(shape)
    part = Trilu(ones, k)
    y = MatMul(x, part) })");
  CHECK((!imported.ok() || count_ops(imported->graph, "Trilu") == 1));
}

TEST_CASE("bodies of two Ifs may use a name, each for its own value") {
  const auto imported = import_text(R"(g (float[N,4] x) => (float[N,4] y) {
    yes = Constant<value = bool {1}>()
    a = If(yes)<then_branch = t1 () => (float out) { out = Constant<value_float = 5.0>() },
                else_branch = e1 () => (float out) { out = Constant<value_float = 1.0>() }>
    b = If(yes)<then_branch = t2 () => (float[N,4] out) { out = Neg(x) },
                else_branch = e2 () => (float[N,4] out) { out = Relu(x) }>
    y = Add(a, b) })");
  REQUIRE(imported.ok());
  CHECK(count_ops(imported->graph, "Neg") == 1);
  CHECK(count_ops(imported->graph, "Add") == 1);
}

TEST_CASE("what depends on the batch otherwise than by a factor is not folded") {
  const std::string batch = R"(g (float[N,4] x) => (float[N,4] y) {
    shape = Shape(x)
    zero = Constant<value_ints = [0]>()
    n = Gather(shape, zero)
)";
  const auto is_left = [&](const std::string& rest) {
    const auto imported = import_text(batch + rest);
    return !imported.ok() || count_ops(imported->graph, "Add") + count_ops(imported->graph, "Scale") > 0;
  };
  CHECK(is_left(R"(    f = Cast<to = 1>(n)
    half = Constant<value_float = 0.5>()
    h = Mul(f, half)
    i = Cast<to = 7>(h)
    g = Cast<to = 1>(i)
    y = Add(x, g) })"));
  CHECK(is_left(R"(    five = Constant<value_ints = [5]>()
    both = Concat<axis = 0>(n, five)
    axes = Constant<value_ints = [0]>()
    m = ReduceMax(both, axes)
    g = Cast<to = 1>(m)
    y = Add(x, g) })"));
}

TEST_CASE("what a small integer type does not hold is not folded") {
  const auto imported = import_text(R"(g (float[N,4] x) => (float[N,4] y) {
    k = Constant<value_ints = [260]>()
    u = Cast<to = 2>(k)
    v = Cast<to = 7>(u)
    s = Constant<value_ints = [1]>()
    shape = Concat<axis = 0>(s, v)
    c = ConstantOfShape<value = float[1] {1}>(shape)
    axes = Constant<value_ints = [1]>()
    m = ReduceSum(c, axes)
    y = Add(x, m) })");
  CHECK_FALSE(imported.ok());
}

TEST_CASE("sums, ranges and lists fold to what their type holds, of operands of one type") {
  const auto folds = [](const std::string& statements) {
    const auto imported =
        import_text("g (float[N,4] x) => (float[N,4] y) {" + statements + " f = Cast<to = 1>(m) y = Add(x, f) }");
    // A constant without a node that makes it, but for its Cast.
    return imported.ok() && imported->graph.node_count() == 1;
  };
  const std::string large =
      " a = Constant<value = int32[2] {2000000000, 100000000}>() k = Constant<value = int64[1] {0}>()";
  CHECK(folds(large + " m = ReduceSum(a, k)"));
  CHECK_FALSE(
      folds(" a = Constant<value = int32[2] {2000000000, 2000000000}>() k = Constant<value = int64[1] {0}>()"
            " m = ReduceSum(a, k)"));
  const std::string range = " a = Constant<value = int32 {2147483646}>() b = Constant<value = int32 {2147483647}>()";
  CHECK(folds(range + " s = Constant<value = int32 {2}>() r = Range(a, b, s) k = Constant<value = int64[1] {0}>()"
                      " m = ReduceSum(r, k)"));
  const std::string mixed = " a = Constant<value = int64[1] {3}>() b = Constant<value = float[1] {3.5}>()";
  CHECK_FALSE(folds(mixed + " m = Add(a, b)"));
  CHECK_FALSE(folds(mixed + " c = Concat<axis = 0>(a, b) k = Constant<value = int64[1] {0}>() m = ReduceSum(c, k)"));
}

TEST_CASE("long ranges end before their limit, also within a step") {
  const auto length = [](const std::string& start, const std::string& limit, const std::string& step) {
    const auto imported = import_text("g (float[N,4] x) => (float[N,4] y) { a = Constant<value_int = " + start +
                                      ">() b = Constant<value_int = " + limit + ">() s = Constant<value_int = " + step +
                                      ">() r = Range(a, b, s) f = Cast<to = 1>(r) m = ReduceSum(f) y = Add(x, m) }");
    REQUIRE(imported.ok());
    const ir::Graph& graph = imported->graph;
    return graph.value(graph.node(*graph.node_ids().begin()).outputs[0]).type.shape[0].factor;
  };
  CHECK(length("0", "10000", "2") == 5000);
  CHECK(length("0", "10001", "2") == 5001);
  CHECK(length("10001", "0", "-2") == 5001);
}

TEST_CASE("hostile shapes are refused, not counted out") {
  for (const char* body : {R"(
    c = Constant<value = int64[2,3] {1,2,3,4,5,6}>()
    t = Transpose<perm = [1, 1]>(c)
    f = Cast<to = 1>(t)
    m = ReduceSum(f)
    y = Add(x, m) })",
                           R"(
    s = Constant<value_ints = [1099511627776]>()
    c = ConstantOfShape<value = float[1] {1}>(s)
    one = Constant<value_ints = [1]>()
    end = Constant<value_ints = [1099511627776]>()
    part = Slice(c, one, end)
    m = ReduceSum(part)
    y = Add(x, m) })",
                           R"(
    s = Constant<value_ints = [1099511627776]>()
    c = ConstantOfShape<value = float[1] {1}>(s)
    a, b = Split<num_outputs = 2>(c)
    m = ReduceSum(a)
    y = Add(x, m) })",
                           R"(
    q = Constant<value = int8[1,0] {}>()
    s = Constant<value = float[1,0] {}>()
    d = DequantizeLinear<axis = 1, block_size = 1>(q, s)
    m = ReduceSum(d)
    y = Add(x, m) })"}) {
    CAPTURE(body);
    const auto imported = import_text(text("g (float[N,4] x) => (float[N,4] y) {", body));
    for (const Diagnostic& problem : imported.problems()) CHECK_FALSE(problem.hint.empty());
  }
}

TEST_CASE("high powers of the batch are no places that a mask picks") {
  std::string body = "    n = Gather(shape, zero)\n    big = Concat<axis = 0>(n";
  for (int i = 1; i < 64; ++i) body += ", n";
  const auto imported = import_text(R"(g (float[N,4] x) => (float[N,4] y) {
    shape = Shape(x)
    zero = Constant<value_ints = [0]>()
)" + body + R"()
    c = ConstantOfShape<value = int64[1] {1}>(big)
    p = Size(c)
    q = Mul(p, p)
    r = Mul(q, q)
    t = Mul(r, r)
    u = Mul(t, t)
    f = Cast<to = 1>(u)
    y = Add(x, f) })");
  CHECK_FALSE(imported.ok());
}

TEST_CASE("repeats that OneHot counts, as TorchScript writes repeat_interleave, are known") {
  const auto imported = import_text(R"(g (float[N,1,4] x) => (float[N,3,4] y) {
    place = Constant<value_ints = [1]>()
    depth = Constant<value_int = 3>()
    values = Constant<value_ints = [1, 3]>()
    repeats = OneHot(place, depth, values)
    flat = Constant<value_ints = [-1]>()
    list = Reshape(repeats, flat)
    y = Tile(x, list) })");
  REQUIRE(imported.ok());
  CHECK(count_ops(imported->graph, "OneHot") == 0);
}
