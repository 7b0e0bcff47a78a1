// Sequences whose number of tensors the file fixes: no node is left of them.

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::import_text;
using graphpipe::testing::nodes_of;
using graphpipe::testing::reports;

TEST_CASE("tensors are put into a sequence, taken out and counted by constant places") {
  const std::string made = R"(g (float[N,3] x) => (float[N,3] y) {
    a = Relu(x)
    b = Exp(x)
    c = Sqrt(x)
    first = Constant<value_int = 0>()
    parts = SequenceConstruct(a, b)
    more = SequenceInsert(parts, c, first)
    )";
  CHECK(nodes_of(import_text(made + "y = SequenceAt(more, first) }")) == "Sqrt(%0) : f32[B,3]\n");
  CHECK(nodes_of(import_text(made + "end = SequenceInsert(more, x) last = Constant<value_int = -1>() "
                                    "w = SequenceAt(end, last) y = Neg(w) }")) == "Neg(%0) : f32[B,3]\n");
  CHECK(nodes_of(import_text(made + "less = SequenceErase(more) y = ConcatFromSequence<axis = 1>(less) }"))
            .find("Concat(%2, %1)") != std::string::npos);
  CHECK(
      nodes_of(import_text(made + "n = SequenceLength(more) f = Cast<to = 1>(n) y = Mul(x, f) }")).find("Mul(%0, %") !=
      std::string::npos);
  const auto outside = import_text(made + "at = Constant<value_int = 3>() [far] y = SequenceAt(more, at) }");
  REQUIRE(!outside.ok());
  CHECK(reports(outside.problems(), Code::kBadModel, "its position is 3 among 3"));
}

TEST_CASE("a sequence that the model gives is as many outputs") {
  const auto imported = import_text(R"(g (float[N,4] x) => (seq(float[N,2]) parts) {
    two = Constant<value = int64 {2}>()
    parts = SplitToSequence<axis = 1>(x, two) })");
  REQUIRE(imported.ok());
  REQUIRE(imported->graph.outputs().size() == 2);
  CHECK(imported->graph.outputs()[0].name.raw() == "parts.0");
  CHECK(imported->graph.outputs()[1].name.raw() == "parts.1");
}

TEST_CASE("a sequence that the model is given has no length, which is said") {
  const auto imported = import_text(R"(g (seq(float[N,4]) parts) => (float[N,4] y) {
    first = Constant<value_int = 0>()
    y = SequenceAt(parts, first) })");
  REQUIRE(!imported.ok());
  CHECK(reports(imported.problems(), Code::kUnsupportedType, "does not say how many tensors it has"));
}

TEST_CASE("a loop fills a sequence, and an optional value may be absent") {
  CHECK(nodes_of(import_text(R"(g (float[N,3] x) => (float[N,6] y) {
    none = SequenceEmpty()
    twice = Constant<value_int = 2>()
    yes = Constant<value = bool {1}>()
    filled = Loop(twice, yes, none) <body = body (int64 i, bool c, seq(float) s) => (bool c2, seq(float) s2) {
      c2 = Identity(c)
      a = Exp(x)
      s2 = SequenceInsert(s, a)
    }>
    y = ConcatFromSequence<axis = 1>(filled) })"))
            .find("Concat(%1, %2)") != std::string::npos);
  CHECK(nodes_of(import_text(R"(g (float[N,3] x) => (float[N,3] y) {
    given = Optional(x)
    there = OptionalHasElement(given)
    y = If(there) <then_branch = yes () => (float[N,3] a) { a = Relu(x) },
                   else_branch = no () => (float[N,3] b) { b = Exp(x) }> })")) == "Relu(%0) : f32[B,3]\n");
}
