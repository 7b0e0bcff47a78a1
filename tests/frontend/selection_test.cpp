// What masks pick: NonZero and what reads at its coordinates. That the numbers are right the models "picked" and
// "last_of_each" of tests/data/exports show, which are trained beside PyTorch.

#include "frontend/selection.h"

#include "tests/support/count_ops.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::count_ops;
using graphpipe::testing::import_text;
using graphpipe::testing::reports;

namespace {

/// x and truth values `keep` for its first two axes; `r` is x[keep], `at` its coordinates, one tuple a row.
std::string picks(const std::string& nodes, const std::string& output = "float[N,4] y") {
  return "g (float[N,6,4] x, bool[N,6] keep) => (" + output + R"() {
    columns = NonZero(keep)
    at = Transpose(columns)
    r = GatherND(x, at)
    first = Constant<value_ints = [0]>()
    one = Constant<value_int = 1>()
    zero = Constant<value_int = 0>()
    zeros = Constant<value = float {0}>()
    table = Constant<value = int64[1,2] {1, 0}>()
    )" + nodes +
         " }";
}

/// The types of the outputs.
std::string output_shapes(const Result<Imported>& imported) {
  std::string shapes;
  for (const auto& output : imported->graph.outputs()) {
    shapes += "[";
    for (const ir::Dim dim : imported->graph.value(output.value).type.shape)
      shapes += text(dim.factor, dim.power == 1 ? "B" : dim.power == 0 ? "" : "?", " ");
    shapes += "]";
  }
  return shapes;
}

}  // namespace

TEST_CASE("rows that a mask picks stay at their places until they are joined or written") {
  const auto scattered = import_text(picks("h = Relu(r)\n y = ScatterND(x, at, h)", "float[N,6,4] y"));
  REQUIRE(scattered.ok());
  CHECK(output_shapes(scattered) == "[1B 6 4 ]");
  CHECK(count_ops(scattered->graph, "GatherND") == 0);
  CHECK(count_ops(scattered->graph, "Where") == 3);
  const auto mean = import_text(picks("m = ReduceMean<keepdims = 0>(r, first)\n y = Add(m, zeros)", "float[4] y"));
  REQUIRE(mean.ok());
  CHECK(output_shapes(mean) == "[4 ]");
  CHECK(count_ops(mean->graph, "Div") == 1);
}

TEST_CASE("a coordinate reads and writes whole rows; what else differs is summed") {
  // Expert 0 of [ranks, rows]: the row of each place, and its weight.
  const auto imported = import_text(R"(g (float[N,4] x, bool[2,N] chosen, float[N,2] weights) => (float[N,4] y) {
    at = NonZero(chosen)
    sizes = Constant<value_ints = [1, 1]>()
    rank, row = Split<axis = 0>(at, sizes)
    first = Constant<value_ints = [0]>()
    last = Constant<value_ints = [1]>()
    row1 = Squeeze(row, first)
    rows = Gather(x, row1)
    row2 = Transpose(row)
    rank2 = Transpose(rank)
    both = Concat<axis = 1>(row2, rank2)
    weight = GatherND(weights, both)
    weight2 = Unsqueeze(weight, last)
    h = Mul(rows, weight2)
    no = Constant<value = float {0}>()
    zeros = Mul(x, no)
    y = ScatterND<reduction = "add">(zeros, row2, h) })");
  REQUIRE(imported.ok());
  CHECK(output_shapes(imported) == "[1B 4 ]");
  CHECK(count_ops(imported->graph, "ReduceSum") == 1);
}

TEST_CASE("picked numbers look rows of a table up") {
  const auto imported = import_text(R"(g (int64[N,6] ids, bool[N,6] keep, float[9,4] t) => (float[4] y) {
    columns = NonZero(keep)
    at = Transpose(columns)
    picked = GatherND(ids, at)
    rows = Gather(t, picked)
    first = Constant<value_ints = [0]>()
    y = ReduceSum<keepdims = 0>(rows, first) })");
  REQUIRE(imported.ok());
  CHECK(output_shapes(imported) == "[4 ]");
  const auto refused = import_text(R"(g (int64[N,6] ids, bool[N,6] keep) => (int64[1] y) {
    columns = NonZero(keep)
    at = Transpose(columns)
    picked = GatherND(ids, at)
    other = NonZero(picked)
    y = Shape<start = 1>(other) })");
  CHECK(reports(refused.problems(), Code::kUnsupportedOp, "a mask"));
}

TEST_CASE("a part of each picked row, and none of the places") {
  const std::string part =
      "to = Constant<value_ints = [2]>()\n s = Slice(r, first, to, axis)\n"
      "y = ReduceSum<keepdims = 0>(s, first)";
  const auto columns = import_text(picks("axis = Constant<value_ints = [1]>()\n" + part, "float[2] y"));
  REQUIRE(columns.ok());
  CHECK(output_shapes(columns) == "[2 ]");
  const auto places = import_text(picks("axis = Constant<value_ints = [0]>()\n" + part, "float[4] y"));
  CHECK(reports(places.problems(), Code::kUnsupportedOp, "takes some of the places"));
}

TEST_CASE("the number of picked places is computed where it is read as a number") {
  const auto imported =
      import_text(picks("s = Shape<start = 0, end = 1>(r)\n n = Cast<to = 1>(s)\n"
                        "t = ReduceSum<keepdims = 0>(x)\n y = Div(t, n)",
                        "float[1] y"));
  REQUIRE(imported.ok());
  CHECK(count_ops(imported->graph, "ReduceSum") == 2);
}

TEST_CASE("x[mask] = v of the newer exporter: the number of values is a sum, the mask is repeated and written twice") {
  const auto imported = import_text(picks(R"(
    two = Constant<value_ints = [2]>()
    all = Constant<value_ints = [-1]>()
    deep = Unsqueeze(keep, two)
    size = Shape(x)
    wide = Expand(deep, size)
    everywhere = NonZero(wide)
    tuples = Transpose(everywhere)
    line = Reshape(keep, all)
    ones = Cast<to = 7>(line)
    count = ReduceSum(ones)
    features = Constant<value_ints = [4]>()
    target = Concat<axis = 0>(count, features)
    v = ReduceMean<keepdims = 0>(r, first)
    values = Expand(v, target)
    flat = Reshape(values, all)
    y = ScatterND(x, tuples, flat))",
                                          "float[N,6,4] y"));
  REQUIRE(imported.ok());
  CHECK(output_shapes(imported) == "[1B 6 4 ]");
}

TEST_CASE("x[mask] = rows: as many rows as the mask picks places go to these in order, as those of masked_scatter") {
  const auto assigned = [](const std::string& rows) {
    return import_text("g (float[N,6,4] x, bool[N,6] keep, float[" + rows + R"(] given) => (float[N,6,4] y) {
    two = Constant<value_ints = [2]>()
    all = Constant<value_ints = [-1]>()
    by_four = Constant<value_ints = [-1, 4]>()
    v = Reshape(given, by_four)
    deep = Unsqueeze(keep, two)
    size = Shape(x)
    wide = Expand(deep, size)
    everywhere = NonZero(wide)
    tuples = Transpose(everywhere)
    line = Reshape(keep, all)
    ones = Cast<to = 7>(line)
    count = ReduceSum(ones)
    features = Constant<value_ints = [4]>()
    target = Concat<axis = 0>(count, features)
    values = Expand(v, target)
    flat = Reshape(values, all)
    y = ScatterND(x, tuples, flat) })");
  };
  const auto imported = assigned("N,2,4");
  REQUIRE(imported.ok());
  CHECK(output_shapes(imported) == "[1B 6 4 ]");
  CHECK(count_ops(imported->graph, "NumberPlaces") == 1);
  CHECK(reports(assigned("3,4").problems(), Code::kUnsupportedOp, "repeats a tensor for picked places"));
}

TEST_CASE("parts for all places of a mask are the places themselves") {
  const auto imported = import_text(R"(g (float[N,2,4] x, bool[N,2] keep) => (float[N,4] y) {
    used = ReduceMax<keepdims = 0>(keep)
    two = Constant<value_ints = [2]>()
    axes = Constant<value_ints = [0]>()
    sizes = Constant<value_ints = [1, 1]>()
    truths = Expand(used, two)
    at = NonZero(truths)
    a, b = Split<axis = 1>(at, sizes)
    second = Squeeze(b)
    y = Gather<axis = 1>(x, second) })");
  REQUIRE(imported.ok());
  CHECK(output_shapes(imported) == "[1B 4 ]");
}

TEST_CASE("whether any place is picked is no fact of the file") {
  CHECK(divide(Number::of_whole(1, 3 * 1024 + 1), Number::of_whole(1, 1024 + 1)) == std::nullopt);
  const Number places = Number::of_dim(picked_places(0, {ir::Dim::batch(), ir::Dim::fixed(6)}));
  CHECK(less(Number::of_whole(0), places) == std::nullopt);
  CHECK(equal(Number::of_whole(1), places) == std::nullopt);
  CHECK(equal(Number::of_whole(-1), places) == false);
  CHECK(divide(places, Number::of_whole(1, 1)).has_value());
}

TEST_CASE("NonZero of constants is a constant: exporters write arange so") {
  const auto imported = import_text(R"(g (float[N,4] x) => (float[N,2] y) {
    ones = Constant<value = int64[4] {1, 0, 0, 1}>()
    at = NonZero(ones)
    first = Constant<value_ints = [0]>()
    places = Squeeze(at, first)
    y = Gather<axis = 1>(x, places) })");
  REQUIRE(imported.ok());
  CHECK(output_shapes(imported) == "[1B 2 ]");
}

TEST_CASE("what is refused of picked places names the node that makes their mask") {
  const auto sorted = import_text(R"(g (float[N,6] x) => (float[N,6] y) {
    zero = Constant<value = float {0}>()
    [above] keep = Greater(x, zero)
    columns = NonZero(keep)
    both = SequenceEmpty()
    parts = SplitToSequence(columns)
    y = Relu(x) })");
  REQUIRE(!sorted.ok());
  CHECK(reports(sorted.problems(), Code::kUnsupportedOp, "the mask of 'above'"));
}

TEST_CASE("the places of a mask that the file holds are numbers, also where exporters count by the places of ones") {
  const auto counted = import_text(R"(g (float[N,4] x) => (float[N,4] y) {
    sizes = Constant<value_ints = [4]>()
    ones = ConstantOfShape<value = int64[1] {1}>(sizes)
    places = NonZero(ones)
    numbers = Cast<to = 1>(places)
    y = Add(x, numbers) })");
  REQUIRE(counted.ok());
  CHECK(count_ops(counted->graph, "Cast") == 0);
  const auto picked = import_text(R"(g (float[N,5] x) => (float[N,2] y) {
    mask = Constant<value = bool[1,5] {0, 1, 0, 0, 1}>()
    places = NonZero(mask)
    both = Constant<value_ints = [1, 1]>()
    zero, at = Split<axis = 0>(places, both)
    first = Constant<value_ints = [0]>()
    columns = Squeeze(at, first)
    y = Gather<axis = 1>(x, columns) })");
  REQUIRE(picked.ok());
  CHECK(output_shapes(picked) == "[1B 2 ]");
  const auto samples = import_text(R"(g (float[N,4] x) => (float[N,4] y) {
    sizes = Shape<end = 1>(x)
    ones = ConstantOfShape<value = int64[1] {1}>(sizes)
    places = NonZero(ones)
    first = Constant<value_ints = [0]>()
    rows = Squeeze(places, first)
    y = Gather(x, rows) })");
  CHECK(samples.ok());
}

TEST_CASE("a slice between numbers that data say is a mask of the places between them") {
  const auto sliced = [](const std::string& bounds, const std::string& size = "6") {
    return import_text("g (float[N,3] x, int64[1] from, int64[1] to, float[" + size + R"(,3] z) => (float[N,3] y) {
      first = Constant<value_ints = [0]>()
      last = Constant<value_ints = [-1]>()
      part = Slice(z, )" +
                       bounds + R"(, first)
      h = Exp(part)
      sum = ReduceSum<keepdims = 0>(h, first)
      y = Add(x, sum) })");
  };
  const auto between = sliced("from, to");
  REQUIRE(between.ok());
  CHECK(output_shapes(between) == "[1B 3 ]");
  CHECK(count_ops(between->graph, "And") == 1);
  CHECK(count_ops(between->graph, "Less") == 3);  // either bound may be counted from the end
  CHECK(count_ops(between->graph, "Slice") == 0);
  const auto to_known = sliced("from, last");
  REQUIRE(to_known.ok());
  CHECK(count_ops(to_known->graph, "And") == 1);
  // The samples stay where they are.
  CHECK(reports(sliced("from, to", "N").problems(), Code::kUnresolvedShape, "bounds depend on data"));
}

TEST_CASE("Dropout of what a mask picks drops at all places, or is nothing where it is off") {
  const std::string text = picks(R"(ratio = Constant<value = float {0.25}>() trains = Constant<value = bool {1}>()
    d = Dropout(r, ratio, trains)
    y = ScatterND(x, at, d))",
                                 "float[N,6,4] y");
  ImportRequest drops;
  drops.spec.dropout = true;
  for (const bool on : {false, true}) {
    const auto imported = import_text(text, on ? drops : ImportRequest{});
    REQUIRE(imported.ok());
    CHECK(output_shapes(imported) == "[1B 6 4 ]");
    CHECK(count_ops(imported->graph, "Dropout") == (on ? 1 : 0));
    CHECK(count_ops(imported->graph, "GatherND") == 0);
  }
}

TEST_CASE("what would depend on how many places are picked is refused by name") {
  const auto refused = [](const std::string& nodes, const std::string& why) {
    return reports(import_text(picks(nodes)).problems(), Code::kUnsupportedOp, why);
  };
  CHECK(refused("y = Identity(r)", "depends on a mask"));
  CHECK(refused("s = Softmax<axis = 0>(r)\n y = Identity(s)", "along the places"));
  // Without an axis it is the last, here that of the places.
  const std::string sums = "at_1 = Constant<value_ints = [1]>()\n v = ReduceSum<keepdims = 0>(r, at_1)\n ";
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax", "LpNormalization"})
    CHECK(refused(sums + "y = " + op + "(v)", "along the places"));
  CHECK(refused("pairs = Constant<value_ints = [-1, 2]>()\n mixed = Reshape(columns, pairs)\n y = GatherND(x, mixed)",
                "mixes the coordinates"));
  CHECK(refused("y = Gather<axis = 0>(r, one)", "one of the places"));
  CHECK(refused("y = Add(r, x)", "another size"));
  CHECK(refused("y = ScatterND(x, at, x)", "not read at them"));
  CHECK(refused("y = ReduceProd<keepdims = 0>(r, first)", "no sum, mean or extreme"));
  CHECK(refused("y = Conv(r, r)", "reads what a mask picks"));
  CHECK(refused("s = ReduceSum(at, first)\n y = Gather(x, s)", "what is not supported"));
  CHECK(refused("s = Concat<axis = 0>(columns, columns, table)\n y = Gather(x, s)", "what is not supported"));
  CHECK(refused("s = Gather(columns, columns)\n y = Gather(x, s)", "what is not supported"));
}

TEST_CASE("where data decide how large a tensor is, the number that does is named") {
  const std::string masked = R"(g (float[N,5] x) => (float[N,M,4] y) {
    zero = Constant<value_float = 0.0>()
    marked = Greater(x, zero)
    ones = Cast<to = 7>(marked)
    axes = Constant<value_ints = [1]>()
    counts = ReduceSum<keepdims = 0>(ones, axes)
    most = ReduceMax<keepdims = 0>(counts)
    )";
  const auto range = import_text(masked + R"(first = Constant<value_int = 0>() one = Constant<value_int = 1>()
    [places] y = Range(first, most, one) })");
  CHECK(reports(range.problems(), Code::kUnresolvedShape, "its bound 'most' depends on data"));
  const auto shape = import_text(masked + R"(n = Shape<end = 1>(x) at = Constant<value_ints = [0]>()
    wide = Unsqueeze(most, at) four = Constant<value_ints = [4]>()
    [size] shape = Concat<axis = 0>(n, wide, four)
    y = ConstantOfShape(shape) })");
  CHECK(reports(shape.problems(), Code::kUnresolvedShape, "of 'wide', which is a number of the data"));
  REQUIRE(!shape.problems().empty());
  CHECK(to_line(shape.problems()[0]).find("'size'") != std::string::npos);
}
