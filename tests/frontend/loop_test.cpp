// Loops whose number of iterations the file fixes.

#include <set>

#include "tests/support/count_ops.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::count_ops;
using graphpipe::testing::import_text;
using graphpipe::testing::nodes_of;
using graphpipe::testing::reports;

namespace {

/// A loop over x that runs so often, or while its condition says.
std::string loop(const std::string& limit, const std::string& condition) {
  return R"(g (float[N,4] x) => (float[N,4] y, float[3,N,4] all) {
    limit = Constant<value_int = )" +
         limit + R"(>()
    true = Constant<value = bool {1}>()
    two = Constant<value_int = 2>()
    y, all = Loop(limit, true, x)<body = b (int64 i, bool c, float[N,4] h) => (bool d, float[N,4] g, float[N,4] s) {
      w = Constant<value = float[4,4] {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}>()
      s = MatMul(h, w)
      g = Relu(s)
      r = ReduceMax<keepdims = 0>(s)
      d = )" +
         condition + " }> }";
}

}  // namespace

TEST_CASE("a loop is lowered once for each iteration, and a weight in its body is one parameter") {
  const auto imported = import_text(loop("3", "Identity(c)"));
  REQUIRE(imported.ok());
  CHECK(count_ops(imported->graph, "Relu") == 3);
  CHECK(count_ops(imported->graph, "MatMul") == 3);
  CHECK(count_ops(imported->graph, "Concat") == 1);
  CHECK(imported->graph.param_count() == 1);
}

TEST_CASE("a condition on the iteration ends it; one on data decides nothing that is stacked") {
  const auto ended = import_text(loop("100", "Less(i, two)"));
  REQUIRE(ended.ok());
  CHECK(count_ops(ended->graph, "Relu") == 3);
  CHECK(reports(import_text(loop("3", "Cast<to = 9>(r)")).problems(), Code::kUnsupportedOp, "depends on data"));
}

TEST_CASE("where data end a loop, the iterations up to its bound keep what was before") {
  const auto until_large = [](const std::string& limit) {
    return import_text(R"(g (float[N,4] x, float limit) => (float[N,4] y) {
      bound = Constant<value_int = )" +
                       limit +
                       R"(>()
      true = Constant<value = bool {1}>()
      [until] y = Loop(bound, true, x)<body = b (int64 i, bool c, float[N,4] h) => (bool d, float[N,4] g) {
        g = Exp(h)
        f = Cast<to = 1>(i)
        d = Less(f, limit) }> })");
  };
  const auto imported = until_large("3");
  REQUIRE(imported.ok());
  CHECK(count_ops(imported->graph, "Exp") == 3);
  CHECK(count_ops(imported->graph, "Where") == 2);  // the first iteration runs in any case
  CHECK(reports(until_large("1000000").problems(), Code::kUnsupportedOp, "no bound for it"));
}

TEST_CASE("an If that an input decides computes both branches and takes one of each pair of results") {
  const auto choice = [](const std::string& other) {
    return import_text(R"(g (float[N,4] x, bool up) => (float[N,4] y) {
      [pick] y = If(up) <then_branch = yes () => (float[N,4] a) { h = Exp(x) a = Neg(h) },
                         else_branch = no () => (float[N,4] c) { )" +
                       other + " }> }");
  };
  // Branches may use the same names.
  CHECK(nodes_of(choice("h = Sqrt(x) c = Relu(h)")) ==
        "Exp(%0) : f32[B,4]\nNeg(%2) : f32[B,4]\nSqrt(%0) : f32[B,4]\nRelu(%4) : f32[B,4]\n"
        "Where(%1, %3, %5) : f32[B,4]\n");
  CHECK(reports(choice("h = Sqrt(x) c = Concat<axis = 1>(h, h)").problems(), Code::kUnsupportedOp,
                "another type or shape"));
  CHECK(reports(import_text(R"(g (float[N,3] x, bool up) => (float[N,3] y) <
      float[3] s = {1, 1, 1}, float[3] b = {0, 0, 0}, float[3] mean = {0, 0, 0}, float[3] variance = {1, 1, 1}> {
    [pick] y = If(up) <then_branch = yes () => (float[N,3] a) { a = BatchNormalization(x, s, b, mean, variance) },
                       else_branch = no () => (float[N,3] c) { c = Relu(x) }> })")
                    .problems(),
                Code::kUnsupportedOp, "would update statistics"));
}

TEST_CASE("where it is trained, no gradient goes through the branch that data do not take") {
  ImportRequest request;
  request.spec.loss.kind = "mse";
  const auto trained = import_text(
      R"(g (float[N,4] x, bool up) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}> {
      a = Mul(x, w)
      y = If(up) <then_branch = yes () => (float[N,4] b) { b = Sqrt(a) },
                  else_branch = no () => (float[N,4] c) { c = Mul(a, w) }> })",
      request);
  CHECK(nodes_of(trained) ==
        "Mul(%0, %w2) : f32[B,4]\nGate(%3, %1) : f32[B,4]\nSqrt(%4) : f32[B,4]\nNot(%1) : bool[]\n"
        "Gate(%3, %6) : f32[B,4]\nGate(%w2, %6) : f32[4]\nMul(%7, %8) : f32[B,4]\nWhere(%1, %5, %9) : f32[B,4]\n");
  CHECK(trained->graph.param(ir::ParamId(0)).trainable);
  const auto loop = import_text(R"(g (float[N,4] x, bool up) => (float[N,4] y) {
    limit = Constant<value_int = 2>()
    y = Loop(limit, up, x)<body = b (int64 i, bool c, float[N,4] h) => (bool d, float[N,4] g) {
      g = Sqrt(h)
      d = Identity(c) }> })",
                                request);
  REQUIRE(loop.ok());
  CHECK(count_ops(loop->graph, "Gate") == 2);
}

TEST_CASE("a condition of a weight is not decided by what the file holds of it, for training changes it") {
  const auto choice = [](const std::string& condition) {
    return import_text(R"(g (float[N,4] x) => (float[N,4] y) <float gate = {1}, float half = {0.5}> {
      scaled = Mul(x, gate)
      )" + condition + R"(
      y = If(up) <then_branch = yes () => (float[N,4] a) { a = Exp(scaled) },
                  else_branch = no () => (float[N,4] c) { c = Neg(scaled) }> })");
  };
  const auto by_weight = choice("up = Greater(gate, half)");
  REQUIRE(by_weight.ok());
  CHECK(count_ops(by_weight->graph, "Where") == 1);
  const auto by_file = choice("one = Constant<value_int = 1>() up = Cast<to = 9>(one)");
  REQUIRE(by_file.ok());
  CHECK(count_ops(by_file->graph, "Where") == 0);
}

TEST_CASE("a scan takes a slice of each scanned input, from either end, and stacks what it makes") {
  const auto imported = import_text(R"(g (float[N,3] x, float[N,5,3] z) => (float[N,3] y, float[N,3,5] sums) {
    y, sums = Scan(x, z)<num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
      scan_output_axes = [2], body = b (float[N,3] h, float[N,3] e) => (float[N,3] g, float[N,3] s) {
        g = Add(h, e)
        s = Identity(g) }> })");
  REQUIRE(imported.ok());
  CHECK(count_ops(imported->graph, "Add") == 5);
  CHECK(count_ops(imported->graph, "Split") == 1);
  CHECK(nodes_of(imported).find("Concat(") != std::string::npos);
  const auto through_batch = import_text(R"(g (float[N,3] x) => (float[3] y) {
    zero = Constant<value = float[3] {0,0,0}>()
    y = Scan(zero, x)<num_scan_inputs = 1, body = b (float[3] h, float[3] e) => (float[3] g) { g = Add(h, e) }> })");
  REQUIRE(!through_batch.ok());
  CHECK(reports(through_batch.problems(), Code::kMixesSamples, "--one-sample"));
}

TEST_CASE("a weight that a loop begins with stays one parameter, also where something else reads it") {
  const auto parameters_of = [](const std::string& statement) {
    const auto imported = import_text("g (float[N,2] x) => (float[N,2] z, float[N,2] y) <float[1,2] w = {1,2}> {" +
                                      statement + " z = Add(y, w) }");
    REQUIRE(imported.ok());
    return imported->graph.param_count();
  };
  CHECK(parameters_of(R"(
    limit = Constant<value_int = 2>()
    h = Loop(limit, , w)<body = b (int64 i, bool c, float[1,2] h0) => (bool d, float[1,2] h1) {
      d = Identity(c)
      h1 = Mul(h0, h0) }>
    y = Add(x, h))") == 1);
  CHECK(parameters_of(R"(
    h, steps = Scan(w, x)<num_scan_inputs = 1, scan_input_axes = [1],
      body = b (float[1,2] h0, float[N] e) => (float[1,2] h1, float[N] s) {
        h1 = Mul(h0, h0)
        s = Identity(e) }>
    y = Add(x, h))") == 1);
}

TEST_CASE("iterations that are too many are refused before they are made") {
  const auto endless = import_text(R"(g (float[N,4] x) => (float[N,4] y) {
    limit = Constant<value_int = 1000000000>()
    y = Loop(limit, , x)<body = b (int64 i, bool c, float[N,4] h) => (bool d, float[N,4] g) {
      e = Identity(c)
      d = Identity(e)
      k = Unique(h)
      g = Relu(h) }> })");
  REQUIRE(endless.problems().size() == 1);  // Unique, which nothing lowers, was not reached.
  CHECK(reports(endless.problems(), Code::kLimitExceeded, "iterations"));
  CHECK(reports(import_text(loop("1000000000", "Less(i, limit)")).problems(), Code::kLimitExceeded, "iterations"));
}

TEST_CASE("what fails in a body is reported once") {
  const auto imported = import_text(R"(g (float[N,4] x) => (float[N,4] y) {
    limit = Constant<value_int = 3>()
    y = Loop(limit, , x)<body = b (int64 i, bool c, float[N,4] h) => (bool d, float[N,4] g) {
      d = Identity(c)
      k = Unique(h)
      g = Relu(h) }> })");
  REQUIRE(!imported.ok());
  CHECK(imported.problems().size() == 1);
}

TEST_CASE("a constant of a body that a branch before it calls a value of its own is refused") {
  const auto imported = import_text(R"(g (float[N,4] x, bool q) => (float[N,4] y) {
    limit = Constant<value_int = 3>()
    y = Loop(limit, , x)<body = b (int64 i, bool c, float[N,4] h) => (bool d, float[N,4] g) {
      d = Identity(c)
      m = If(q)<then_branch = t () => (float[N,4] a) { k = Constant<value_float = 2.0>() a = Mul(h, k) },
                else_branch = e () => (float[N,4] b) { b = Relu(h) }>
      k = Constant<value_float = 3.0>()
      g = Mul(m, k) }> })");
  CHECK(reports(imported.problems(), Code::kBadModel, "defines 'k' twice"));
}

TEST_CASE("what each iteration folds for itself is a constant of its own") {
  const auto imported = import_text(R"(g (float[N,4] x) => (float[N,4] y, float[3,1] steps) {
    limit = Constant<value_int = 3>()
    y, steps = Loop(limit, , x)<body = b (int64 i, bool c, float[N,4] h) => (bool d, float[N,4] g, float[1] s) {
      d = Identity(c)
      one = Constant<value_ints = [1]>()
      j = Reshape(i, one)
      s = Cast<to = 1>(j)
      g = Add(h, s) }> })");
  REQUIRE(imported.ok());
  std::set<std::string> names;
  for (const ir::ParamId id : imported->graph.param_ids()) names.insert(imported->graph.param(id).name.raw());
  CHECK(names.size() == imported->graph.param_count());
  CHECK(ir::verify_graph(imported->graph).ok());
}
