// Operators that others are made of: deformed convolutions, unpooling, triangles over frequencies, counts of n-grams,
// arithmetic of uint64.

#include "frontend/node_context.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::contains;
using graphpipe::testing::import_text;
using graphpipe::testing::nodes_of;
using graphpipe::testing::reports;

TEST_CASE("a deformed convolution reads by GridSample, in groups of shifts, and weighs what it read") {
  const std::string nodes = nodes_of(import_text(R"(g (float[N,4,6,5] x, float[N,36,6,5] shifts, float[N,18,6,5] mask)
      => (float[N,2,6,5] y) {
    s = Constant<value_ints = [2,2,3,3]>()
    w = ConstantOfShape(s)
    [deform] y = DeformConv<pads = [1,1,1,1], offset_group = 2, group = 2>(x, w, shifts, , mask) })"));
  CHECK(contains(nodes, ": f32[2*B,2,54,5]\n"));
  CHECK(contains(nodes, "GridSample("));
  CHECK(contains(nodes, "Conv("));
  CHECK(contains(nodes, ": f32[B,36,6,5]\n"));
  const auto wrong = import_text(R"(g (float[N,4,6,5] x, float[N,18,6,4] shifts) => (float[N,3,6,5] y) {
    s = Constant<value_ints = [3,4,3,3]>()
    w = ConstantOfShape(s)
    [deform] y = DeformConv<pads = [1,1,1,1]>(x, w, shifts) })");
  REQUIRE(!wrong.ok());
  CHECK(reports(wrong.problems(), wrong.problems()[0].code, "do not fit each other"));
}

TEST_CASE("MaxUnpool puts every value to its place within its sample") {
  const std::string nodes = nodes_of(import_text(R"(g (float[N,3,4,4] x) => (float[N,3,5,5] y) {
    small, places = MaxPool<kernel_shape = [2,2], strides = [2,2]>(x)
    n = Shape<end = 1>(x)
    rest = Constant<value_ints = [3,5,5]>()
    shape = Concat<axis = 0>(n, rest)
    y = MaxUnpool<kernel_shape = [2,2], strides = [2,2]>(small, places, shape) })"));
  CAPTURE(nodes);
  CHECK(contains(nodes, "ScatterElements("));
  CHECK(contains(nodes, ": f32[B,48]\n"));
  // The MaxPool's own places within its samples.
  CHECK_FALSE(contains(nodes, ": f32[B,48] @mixed"));
  CHECK(nodes.ends_with(": f32[B,3,5,5]\n"));
  CHECK(contains(nodes_of(import_text(R"(g (float[N,3,2,2] x, int64[N,3,2,2] places) => (float[N,3,4,4] y) {
    y = MaxUnpool<kernel_shape = [2,2], strides = [2,2]>(x, places) })")),
                 "Mod(%1"));
}

TEST_CASE("MelWeightMatrix of constants is a constant, of other numbers it has no size") {
  const std::string head = "g (float[N,9] x";
  const std::string body = R"() => (float[N,4] y) {
    bins = Constant<value_int = 4>()
    length = Constant<value_int = 16>()
    low = Constant<value_float = 0.0>()
    high = Constant<value_float = 4000.0>()
    )";
  const auto fixed = import_text(head + body +
                                 "rate = Constant<value_int = 8192>() "
                                 "m = MelWeightMatrix(bins, length, rate, low, high) y = MatMul(x, m) }");
  CHECK(contains(nodes_of(fixed), "f32[B,4]"));
  const auto open = import_text(head + ", int64 rate" + body +
                                "m = MelWeightMatrix(bins, length, rate, low, high) y = MatMul(x, m) }");
  CHECK(!open.ok());
}

TEST_CASE("n-grams are compared at every place of a row") {
  const std::string nodes = nodes_of(import_text(R"(g (int64[N,7] x) => (float[N,3] y) {
    y = TfIdfVectorizer<mode = "TF", min_gram_length = 1, max_gram_length = 2, max_skip_count = 1,
        ngram_counts = [0, 1], ngram_indexes = [0, 1, 2], pool_int64s = [5, 5, 6, 7, 8]>(x) })"));
  CHECK(contains(nodes, ": f32[B,3]\n"));
  CHECK(contains(nodes, ": bool[B,6,2]\n"));  // two words side by side
  CHECK(contains(nodes, ": bool[B,5,2]\n"));  // and one apart
  const auto words = import_text(R"(g (int64[N,7] x) => (float[N,3] y) {
    [count] y = TfIdfVectorizer<mode = "TF", min_gram_length = 1, max_gram_length = 2, max_skip_count = 1,
        ngram_counts = [0, 9], ngram_indexes = [0, 1, 2], pool_int64s = [5, 5, 6, 7, 8]>(x) })");
  REQUIRE(!words.ok());
  CHECK(reports(words.problems(), Code::kBadModel, "n-grams do not fit"));
}

TEST_CASE("quotients of uint64 are made of int64") {
  const std::string nodes = nodes_of(import_text(R"(g (uint64[N,3] x, uint64[N,3] y) => (uint64[N,3] z) {
    z = Mod(x, y) })"));
  CHECK(contains(nodes, "BitShift("));
  CHECK(contains(nodes, ": u64[B,3]\n"));
}

TEST_CASE("the updated statistics of a BatchNormalization may be given, but not read") {
  const std::string model = R"(g (float[N,3,2] x) => (float[N,3,2] y, float[3] after) <
      float[3] s = {1, 1, 1}, float[3] b = {0, 0, 0}, float[3] mean = {0, 0, 0}, float[3] variance = {1, 1, 1}> {
    )";
  const auto given =
      import_text(model + "y, after, v = BatchNormalization<training_mode = 1>(x, s, b, mean, variance) }");
  REQUIRE(given.ok());
  CHECK(given->graph.outputs()[1].name.raw() == "after");
  const auto read = import_text(model +
                                "y, m, v = BatchNormalization<training_mode = 1>(x, s, b, mean, variance) "
                                "after = Relu(m) }");
  REQUIRE(!read.ok());
  CHECK(reports(read.problems(), Code::kUnsupportedOp, "read as values"));
}

TEST_CASE("what passes ask of an operator they get of one that is composed of others too") {
  using ops::Dependence;
  CHECK(frontend::dependence_of("Swish") == Dependence::kElement);
  CHECK(frontend::dependence_of("CastLike") == Dependence::kElement);
  CHECK(frontend::dependence_of("Hardmax") == Dependence::kAlongAxis);
  CHECK(frontend::dependence_of("LpNormalization") == Dependence::kAlongAxis);
  CHECK(frontend::dependence_of("Clip") == ops::dependence_of("Clip"));
  CHECK(frontend::dependence_of("LpPool") == Dependence::kAny);
  CHECK(default_axis_of("Hardmax") == -1);
  CHECK(default_axis_of("LpNormalization") == -1);
  CHECK(default_axis_of("Concat") == 0);
  CHECK_FALSE(default_axis_of("Relu"));
  CHECK_FALSE(default_axis_of("Unknown"));
}
