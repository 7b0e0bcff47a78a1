// Forms of operators, from ONNX's text form to the graph's.

#include <algorithm>

#include "tests/support/count_ops.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::count_ops;
using graphpipe::testing::import_text;
using graphpipe::testing::nodes_of;
using graphpipe::testing::reports;

TEST_CASE("a Reshape by computed sizes keeps the batch symbolic") {
  CHECK(nodes_of(import_text(R"(g (float[N,6,4] x) => (float[M,K] y) {
    s = Shape(x)
    zero = Constant<value_int = 0>()
    n = Gather(s, zero)
    axes = Constant<value_ints = [0]>()
    n1 = Unsqueeze(n, axes)
    rest = Constant<value_ints = [-1]>()
    target = Concat<axis = 0>(n1, rest)
    y = Reshape(x, target)
  })")) == "Reshape(%0) {shape=dims[B,24]} : f32[B,24]\n");
}

TEST_CASE("shape arithmetic with division, comparison and choice folds for every batch") {
  CHECK(nodes_of(import_text(R"(g (float[N,6,4] x) => (float[M,K] y) {
    s = Shape(x)
    one = Constant<value_ints = [1]>()
    zero = Constant<value_ints = [0]>()
    two = Constant<value_ints = [2]>()
    minus = Constant<value_ints = [-1]>()
    n = Slice(s, zero, one)
    six = Gather(s, one)
    twelve = Mul(six, two)
    doubled = Mul(n, two)
    n_again = Div(doubled, two)
    is_minus = Equal(n_again, minus)
    chosen = Where(is_minus, one, n_again)
    more = Mul(chosen, twelve)
    target = Concat<axis = 0>(more, two)
    y = Reshape(x, target)
  })")) == "Reshape(%0) {shape=dims[12*B,2]} : f32[12*B,2]\n");
}

TEST_CASE("B + 1 has no symbolic form and is refused by the node's name") {
  const auto imported = import_text(R"(g (float[N,4] x) => (float[M,4] y) {
    s = Shape<end = 1>(x)
    one = Constant<value_ints = [1]>()
    four = Constant<value_ints = [4]>()
    more = Add(s, one)
    target = Concat<axis = 0>(more, four)
    [grow] y = Expand(x, target)
  })");
  REQUIRE(!imported.ok());
  CHECK(imported.problems()[0].code == Code::kUnresolvedShape);
}

TEST_CASE("a slice of the whole batch axis is no slice, one of a part is refused") {
  const std::string head = "g (float[N,6] x) => (float[M,6] y) { zero = Constant<value_ints = [0]>() ";
  CHECK(nodes_of(import_text(head + R"(
    all = Constant<value_ints = [9223372036854775807]>()
    x1 = Slice(x, zero, all, zero)
    y = Relu(x1) })")) == "Relu(%0) : f32[B,6]\n");
  CHECK(nodes_of(import_text(head + R"(
    n = Shape<end = 1>(x)
    x1 = Slice(x, zero, n, zero)
    y = Relu(x1) })")) == "Relu(%0) : f32[B,6]\n");
  const auto part = import_text(head + R"(
    one = Constant<value_ints = [1]>()
    y = Slice(x, zero, one, zero) })");
  REQUIRE(!part.ok());
  CHECK(reports(part.problems(), Code::kMixesSamples, "batch"));
}

TEST_CASE("SplitToSequence and SequenceAt become Split") {
  CHECK(nodes_of(import_text(R"(g (float[N,6] x) => (float[N,2] y) {
    two = Constant<value = int64 {2}>()
    one = Constant<value_int = 1>()
    last = Constant<value_int = -1>()
    parts = SplitToSequence<axis = -1>(x, two)
    a = SequenceAt(parts, one)
    b = SequenceAt(parts, last)
    y = Add(a, b)
  })")) == "Split(%0) {axis=1, sizes=[2,2,2]} : f32[B,2], f32[B,2], f32[B,2]\nAdd(%2, %3) : f32[B,2]\n");
}

TEST_CASE("all forms of Constant are read") {
  const auto imported = import_text(R"(g (float[N,3] x) => (float[N,3] y) {
    a = Constant<value_float = 2.0>()
    b = Constant<value_floats = [1.0, 2.0, 3.0]>()
    c = Constant<value = float[3] {4.0, 5.0, 6.0}>()
    d = Constant<value = float {0.5}>()
    x1 = Mul(x, a)
    x2 = Add(x1, b)
    x3 = Sub(x2, c)
    y = Div(x3, d)
  })");
  REQUIRE(imported.ok());
  CHECK(imported->graph.param_count() == 4);
  CHECK(imported->graph.node_count() == 4);
}

TEST_CASE("Dropout that the exporter switched off is switched on and reported, or left off") {
  const std::string model = R"(g (float[N,3] x) => (float[N,3] y) {
    ratio = Constant<value_float = 0.25>()
    [lost] x1 = Dropout(x, ratio)
    y = Relu(x1)
  })";
  CHECK(nodes_of(import_text(model)) == "Relu(%0) : f32[B,3]\n");
  ImportRequest request;
  request.spec.dropout = true;
  const auto on = import_text(model, request);
  REQUIRE(on.ok());
  CHECK(on->graph.node_count() == 2);
  CHECK(reports(on->notes, Code::kLostByExport, "0.25"));
}

TEST_CASE("a normalization by statistics that the graph computes has their gradients, and what they are of trains") {
  const auto standardised = import_text(R"(<ir_version: 10, opset_import: ["" : 21], producer_name: "pytorch">
    g (float[N,1,4,4] x) => (float[N,2,4,3] y) <float[2,1,1,2] w = {1, 2, 3, 5}, float[2] b = {0.5, 0.25}> {
      flat_shape = Constant<value_ints = [1, 2, 2]>()
      shape = Constant<value_ints = [2, 1, 1, 2]>()
      axes = Constant<value_ints = [0, 2]>()
      ones = Constant<value = float[2] {1, 1}>()
      zeros = Constant<value = float[2] {0, 0}>()
      flat = Reshape(w, flat_shape)
      mean = ReduceMean<keepdims = 0>(flat, axes)
      all = ReduceMean(flat, axes)
      apart = Sub(flat, all)
      squares = Mul(apart, apart)
      variance = ReduceMean<keepdims = 0>(squares, axes)
      normal = BatchNormalization<epsilon = 0.001>(flat, ones, zeros, mean, variance)
      kernel = Reshape(normal, shape)
      y = Conv(x, kernel, b) })");
  REQUIRE(standardised.ok());
  CHECK(count_ops(standardised->graph, "BatchNormalization") == 0);
  CHECK(count_ops(standardised->graph, "Sqrt") == 1);
  for (const ir::ParamId id : standardised->graph.param_ids()) {
    const std::string name = standardised->graph.param(id).name.raw();
    if (name == "w" || name == "b") CHECK(standardised->graph.param(id).trainable);
  }
}

TEST_CASE("an If with a known condition becomes its branch") {
  CHECK(nodes_of(import_text(R"(g (float[N,3] x) => (float[N,3] y) {
    s = Shape<start = 1>(x)
    three = Constant<value_ints = [3]>()
    same = Equal(s, three)
    axes = Constant<value_ints = [0]>()
    flag = Squeeze(same, axes)
    y = If(flag) <then_branch = then () => (float[N,3] a) { a = Relu(x) },
                  else_branch = otherwise () => (float[N,3] b) { b = Neg(x) }>
  })")) == "Relu(%0) : f32[B,3]\n");
}

TEST_CASE("local functions are inlined") {
  CHECK(nodes_of(import_text(R"(<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
  g (float[N,3] x) => (float[N,3] y) { y = own.twice(x) }
  <opset_import: ["" : 21], domain: "own">
  twice (a) => (b) { h = Relu(a) b = Neg(h) }
  )")) == "Relu(%0) : f32[B,3]\nNeg(%1) : f32[B,3]\n");
}

TEST_CASE("older opsets are converted: a Softmax of opset 11 flattens first") {
  const auto imported = import_text(R"(<ir_version: 6, opset_import: ["" : 11]>
    g (float[N,3] x) => (float[N,3] y) { y = Softmax<axis = 1>(x) })");
  REQUIRE(imported.ok());
  CHECK(imported->graph.value(imported->graph.outputs()[0].value).type.shape ==
        ir::Shape{ir::Dim::batch(), ir::Dim::fixed(3)});
}

TEST_CASE("an operator without a row is replaced by its schema's function body") {
  const auto imported = import_text(R"(g (float[N,3] x) => (float[N,3] y) { y = ThresholdedRelu<alpha = 0.5>(x) })");
  for (const Diagnostic& problem : imported.problems()) MESSAGE(to_line(problem));
  REQUIRE(imported.ok());
  CHECK(imported->graph.node_count() > 1);
  CHECK(imported->graph.value(imported->graph.outputs()[0].value).type.shape ==
        ir::Shape{ir::Dim::batch(), ir::Dim::fixed(3)});
}

TEST_CASE("a fixed batch is re-bound, and a constant that bakes it in where rows do not stay rows is refused by name") {
  const auto flat = import_text(R"(g (float[7,2,4] x) => (float[7,8] y) {
    target = Constant<value_ints = [7, 8]>()
    y = Reshape(x, target)
  })");
  CHECK(nodes_of(flat) == "Reshape(%0) {shape=dims[B,8]} : f32[B,8]\n");
  CHECK(flat->traced_batch == 7);
  CHECK(reports(flat->notes, Code::kBatchNotFound, "'y'"));

  const auto sequence_first = import_text(R"(g (float[7,2,4] x) => (float[7,2,4] y) {
    t = Transpose<perm = [1, 0, 2]>(x)
    target = Constant<value_ints = [7, 2, 4]>()
    [baked] y = Reshape(t, target)
  })");
  REQUIRE(!sequence_first.ok());
  CHECK(reports(sequence_first.problems(), Code::kBatchNotFound, "'baked'"));
  CHECK(reports(sequence_first.problems(), Code::kBatchNotFound, "dynamo=True"));

  const auto one_sample = import_text(R"(g (float[1,4] x) => (float[4] y) {
    zero = Constant<value_int = 0>()
    [first] y = Gather(x, zero)
  })");
  REQUIRE(!one_sample.ok());
  CHECK(reports(one_sample.problems(), Code::kBatchNotFound, "'first'"));
}

TEST_CASE("pixel shuffles are reshapes around a transpose, in both orders of channels") {
  const std::string head = "g (float[N,8,2,3] x) => (float[N,2,4,6] y) { y = DepthToSpace";
  CHECK(nodes_of(import_text(head + "<blocksize = 2, mode = \"CRD\">(x) }")) ==
        "Reshape(%0) {shape=dims[B,2,2,2,2,3]} : f32[B,2,2,2,2,3]\n"
        "Transpose(%1) {perm=[0,1,4,2,5,3]} : f32[B,2,2,2,3,2]\n"
        "Reshape(%2) {shape=dims[B,2,4,6]} : f32[B,2,4,6]\n");
  CHECK(nodes_of(import_text(head + "<blocksize = 2>(x) }")).find("perm=[0,3,4,1,5,2]") != std::string::npos);
  CHECK(reports(import_text(head + "<blocksize = 3>(x) }").problems(), Code::kBadModel, "do not divide"));
}

TEST_CASE("an RNN becomes its steps, the backward direction from the end") {
  const std::string nodes = nodes_of(import_text(R"(g (float[N,2,4] x0) => (float[2,1,N,3] y)
    <int64[3] w_shape = {1, 3, 4}, int64[3] r_shape = {1, 3, 3}> {
    x = Transpose<perm = [1, 0, 2]>(x0)
    w = ConstantOfShape(w_shape)
    r = ConstantOfShape(r_shape)
    y = RNN<hidden_size = 3, direction = "reverse">(x, w, r)
  })"));
  CHECK(std::count(nodes.begin(), nodes.end(), '\n') > 8);
  CHECK(nodes.find("Split(") < nodes.find("Tanh("));
  size_t tanh = 0;
  for (size_t at = nodes.find("Tanh("); at != std::string::npos; at = nodes.find("Tanh(", at + 1)) ++tanh;
  CHECK(tanh == 2);
}

TEST_CASE("default activations may be written out, others are refused") {
  const std::string head = R"(g (float[N,2,4] x0) => (float[2,1,N,3] y)
    <int64[3] w_shape = {1, 12, 4}, int64[3] r_shape = {1, 12, 3}> {
    x = Transpose<perm = [1, 0, 2]>(x0)
    w = ConstantOfShape(w_shape)
    r = ConstantOfShape(r_shape)
    y = LSTM<hidden_size = 3, activations = [)";
  CHECK(nodes_of(import_text(head + "\"Sigmoid\", \"tanh\", \"Tanh\"]>(x, w, r) }")).find("LSTM(") !=
        std::string::npos);
  CHECK(reports(import_text(head + "\"Sigmoid\", \"Relu\", \"Tanh\"]>(x, w, r) }").problems(), Code::kUnsupportedOp,
                "other activations"));
}

TEST_CASE("in a file with a fixed batch, the batch axis expands to itself whatever constant the file holds") {
  CHECK(nodes_of(import_text(R"(g (float[4,1,5] x) => (float[4,3,5] y) <int64[3] target = {4, 3, 5}> {
    y = Expand(x, target)
  })")) == "Expand(%0) {shape=dims[B,3,5]} : f32[B,3,5]\n");
  // Zeros of the traced size, as the first state of an LSTM.
  CHECK(nodes_of(import_text(R"(g (float[4,5] x) => (float[4,5] y) <int64[2] traced = {4, 5}> {
    zero = Constant<value_float = 0.0>()
    zeros = Expand(zero, traced)
    s = Shape(x)
    state = Expand(zeros, s)
    y = Add(x, state)
  })"))
            .find("Full() {shape=dims[B,5]") != std::string::npos);
}

TEST_CASE("what is repeated by the batch size becomes an axis of samples, or of the samples' copies") {
  const auto repeated = [](const std::string& constant, const std::string& repeats) {
    return nodes_of(import_text("g (float[N,3] x) => (float[A,D,C] y) <" + constant + R"(> {
      n = Shape<end = 1>(x)
      r = Concat<axis = 0>()" + repeats +
                                R"()
      y = Tile(w, r)
    })"));
  };
  const std::string ones = ", int64[1] one = {1}, int64[1] two = {2}";
  CHECK(repeated("float[1,3,1] w = {1, 2, 3}" + ones, "n, one, one").find("{shape=dims[B,3,1]}") != std::string::npos);
  // As attention over batch x heads does with a table of positions of all heads.
  const std::string heads = repeated("float[2,3,1] w = {1, 2, 3, 4, 5, 6}" + ones, "n, one, two");
  CHECK(heads.find("f32[2,3,2]") != std::string::npos);
  CHECK(heads.find("{shape=dims[B,2,3,2]}") != std::string::npos);
  CAPTURE(heads);
  CHECK(heads.find("{shape=dims[2*B,3,2]} : f32[2*B,3,2]") != std::string::npos);
  CHECK_FALSE(import_text(R"(g (float[N,3] x) => (float[A,3] y) <int64[1] one = {1}> {
    n = Shape<end = 1>(x)
    r = Concat<axis = 0>(n, one)
    y = Tile(x, r)
  })")
                  .ok());
}

TEST_CASE("a constant that bakes the batch in is refused with the name of its node") {
  const auto imported = import_text(R"(g (float[4,3,5] x) => (float[4,6,5] y)
    <float[1,2,1,5] tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, int64[4] target = {2, 2, 3, 5}, int64[3] rows = {4, 3, 5}> {
    many = Expand(tokens, target)
    [fold] states = Reshape(many, rows)
    [join] y = Concat<axis = 1>(states, x)
  })");
  REQUIRE(!imported.ok());
  CHECK(reports(imported.problems(), Code::kBatchNotFound, "fold"));
  CHECK(reports(imported.problems(), Code::kBatchNotFound, "dynamic_shapes"));
}

TEST_CASE("operators with a known way round get a hint of their own") {
  CHECK(reports(import_text("g (float[N,4] x) => (int64[2,M] y) { y = NonZero(x) }").problems(), Code::kUnsupportedOp,
                "torch.where"));
}

TEST_CASE("a reversed slice that ends before the first element keeps all of it") {
  CHECK(nodes_of(import_text(R"(g (float[N,5] x) => (float[N,5] y) <int64[1] from = {-1}, int64[1] axis = {1}> {
    end = Constant<value_ints = [-9223372036854775808]>()
    y = Slice(x, from, end, axis, from)
  })"))
            .find("f32[B,5]") != std::string::npos);
}

TEST_CASE("filled tensors of PyTorch's exports are masks, those of files without weights are weights") {
  const std::string body = R"(g (float[N,4] x) => (float[N,3] y) {
    shape = Constant<value_ints = [4, 3]>()
    w = ConstantOfShape(shape)
    y = MatMul(x, w)
  })";
  const auto other = import_text("<ir_version: 10, opset_import: [\"\" : 21], producer_name: \"test\">" + body);
  const auto torch = import_text("<ir_version: 10, opset_import: [\"\" : 21], producer_name: \"pytorch\">" + body);
  REQUIRE(other.ok());
  REQUIRE(torch.ok());
  CHECK(other->graph.param(ir::ParamId(0)).trainable);
  for (ir::ParamId id : torch->graph.param_ids()) CHECK_FALSE(torch->graph.param(id).trainable);
}

TEST_CASE("attention with a mask and rotary embedding are replaced by their function bodies") {
  const std::string head = "<ir_version: 10, opset_import: [\"\" : 23], producer_name: \"test\">";
  const auto attention = import_text(head + R"(g (float[N,2,3,4] q, float[N,2,3,4] k) => (float[N,2,3,4] y)
    <float[3,3] mask = {0, -9, -9, 0, 0, -9, 0, 0, 0}> { y = Attention(q, k, k, mask) })");
  CHECK(nodes_of(attention).find("Softmax(") != std::string::npos);
  const auto rotary = import_text(head + R"(g (float[N,2,3,4] x) => (float[N,2,3,4] y)
    <float[3,2] cos = {1, 1, 0, 0, 1, 1}, float[3,2] sin = {0, 0, 1, 1, 0, 0}> {
    p = Constant<value = int64[1,3] {0, 1, 2}>()
    n = Shape<end = 1>(x)
    three = Constant<value_ints = [3]>()
    s = Concat<axis = 0>(n, three)
    ids = Expand(p, s)
    y = RotaryEmbedding(x, cos, sin, ids) })");
  CHECK(nodes_of(rotary).find("Concat(") != std::string::npos);
}

TEST_CASE("a GRU that resets before its product becomes its steps") {
  const std::string nodes = nodes_of(import_text(R"(g (float[N,2,4] x0) => (float[2,1,N,3] y)
    <int64[3] w_shape = {1, 9, 4}, int64[3] r_shape = {1, 9, 3}> {
    x = Transpose<perm = [1, 0, 2]>(x0)
    w = ConstantOfShape(w_shape)
    r = ConstantOfShape(r_shape)
    y = GRU<hidden_size = 3, linear_before_reset = 0>(x, w, r)
  })"));
  CHECK(nodes.find("GRU(") == std::string::npos);
  size_t gates = 0;
  for (size_t at = nodes.find("Sigmoid("); at != std::string::npos; at = nodes.find("Sigmoid(", at + 1)) ++gates;
  CHECK(gates == 2);  // z and r of a step are one product
}

TEST_CASE("EyeLike is a matrix of ones cut to one diagonal") {
  CHECK(nodes_of(import_text("g (float[N,3] x) => (float[N,3] y) { e = EyeLike<k = 1>(x) y = Add(x, e) }")) ==
        "Full() {shape=dims[B,3], to=\"f32\", value=1.0} : f32[B,3]\n"
        "Trilu(%1) {k=1, upper=1} : f32[B,3] @mixed\n"
        "Trilu(%2) {k=1, upper=0} : f32[B,3] @mixed\n"
        "Add(%0, %3) : f32[B,3] @mixed\n");
}

TEST_CASE("a Pad that wraps is cuts joined, round as often as it reaches, in one axis after the other") {
  CHECK(nodes_of(import_text(R"(g (float[N,2,3] x) => (float[N,3,8] y) {
    pads = Constant<value_ints = [0,0,1,0,1,4]>()
    y = Pad<mode = "wrap">(x, pads)
  })")) ==
        "Slice(%0) {axes=[1], ends=[1], starts=[0], steps=[1]} : f32[B,1,3]\n"
        "Concat(%0, %1) {axis=1} : f32[B,3,3]\n"
        "Slice(%2) {axes=[2], ends=[3], starts=[2], steps=[1]} : f32[B,3,1]\n"
        "Slice(%2) {axes=[2], ends=[1], starts=[0], steps=[1]} : f32[B,3,1]\n"
        "Concat(%3, %2, %2, %4) {axis=2} : f32[B,3,8]\n");
  const auto batch = import_text(R"(g (float[N,2] x) => (float[M,2] y) {
    pads = Constant<value_ints = [1,0,0,0]>()
    y = Pad<mode = "wrap">(x, pads)
  })");
  REQUIRE(!batch.ok());
  CHECK(reports(batch.problems(), Code::kMixesSamples, "batch"));
}

TEST_CASE("LpNormalization divides by the norm, and by 1 where that is 0") {
  CHECK(nodes_of(import_text(R"(g (float[N,4] x) => (float[N,4] y) { y = LpNormalization<axis = 1, p = 1>(x) })")) ==
        "ReduceL1(%0) {axes=[1], keepdims=1} : f32[B,1]\n"
        "Full() {shape=dims[], to=\"f32\", value=0.0} : f32[]\n"
        "Full() {shape=dims[], to=\"f32\", value=1.0} : f32[]\n"
        "Equal(%1, %2) : bool[B,1]\n"
        "Where(%4, %3, %1) : f32[B,1]\n"
        "Div(%0, %5) : f32[B,4]\n");
}

TEST_CASE(
    "a ScatterND that replaces every row, as `x[:, a:b] = y` is exported, is what it writes: samples stay apart") {
  const auto written = [](const std::string& first) {
    return import_text("g (float[N,4] x, float[N,4] u) => (float[N,4] y) {\n first = Constant<value = int64 {" + first +
                       R"(}>()
    zero = Constant<value = int64 {0}>()
    one = Constant<value = int64 {1}>()
    last = Constant<value = int64[1] {-1}>()
    sizes = Shape(x)
    rows = Gather(sizes, zero)
    end = Add(rows, first)
    range = Range(first, end, one)
    at = Unsqueeze(range, last)
    h = Relu(u)
    s = ScatterND(x, at, h)
    y = Exp(s)
  })");
  };
  const auto every = written("0");
  REQUIRE(every.ok());
  CHECK(nodes_of(every) == "Relu(%1) : f32[B,4]\nExp(%2) : f32[B,4]\n");
  // From another row on it is not.
  const auto shifted = written("1");
  CHECK((!shifted.ok() || nodes_of(shifted).find("ScatterND(") != std::string::npos));
}

TEST_CASE("a ScatterND that replaces a part, as TorchScript writes `x[:, a:b, c:d] = y`, is made of slices") {
  // The places as that exporter counts them out, those of each sample among them.
  const auto written = [](const std::string& middle, const std::string& last) {
    return import_text(
        "g (float[N,5,4] x, float[N,2,3] u) => (float[N,5,4] z) {\n middle = Constant<value = int64[2,1] " + middle +
        ">()\n last = Constant<value = int64[3] " + last + R"(>()
    zero = Constant<value = int64 {0}>()
    one = Constant<value = int64 {1}>()
    column = Constant<value = int64[3] {-1, 1, 1}>()
    all = Constant<value = int64[1] {-1}>()
    sizes = Shape(x)
    rows = Gather(sizes, zero)
    range = Range(zero, rows, one)
    samples = Reshape(range, column)
    box = Shape(u)
    i = Expand(samples, box)
    j = Expand(middle, box)
    k = Expand(last, box)
    i1 = Unsqueeze(i, all)
    j1 = Unsqueeze(j, all)
    k1 = Unsqueeze(k, all)
    at = Concat<axis = -1>(i1, j1, k1)
    y = ScatterND(x, at, u)
    z = Exp(y)
  })");
  };
  const auto part = written("{2, 3}", "{0, 1, 2}");
  REQUIRE(part.ok());
  CHECK(nodes_of(part) ==
        "Slice(%0) {axes=[1], ends=[2], starts=[0], steps=[1]} : f32[B,2,4]\n"
        "Slice(%0) {axes=[1], ends=[4], starts=[2], steps=[1]} : f32[B,2,4]\n"
        "Slice(%3) {axes=[2], ends=[4], starts=[3], steps=[1]} : f32[B,2,1]\n"
        "Concat(%1, %4) {axis=2} : f32[B,2,4]\n"
        "Slice(%0) {axes=[1], ends=[5], starts=[4], steps=[1]} : f32[B,1,4]\n"
        "Concat(%2, %5, %6) {axis=1} : f32[B,5,4]\n"
        "Exp(%7) : f32[B,5,4]\n");
  // Rows with a gap, turned round, out of range, or those of another axis are no part of it.
  for (const auto& [middle, last] : std::vector<std::pair<std::string, std::string>>{
           {"{1, 3}", "{0, 1, 2}"}, {"{3, 2}", "{0, 1, 2}"}, {"{2, 3}", "{0, 1, 3}"}, {"{4, 5}", "{0, 1, 2}"}}) {
    CAPTURE(middle);
    CAPTURE(last);
    const auto other = written(middle, last);
    REQUIRE(other.ok());
    CHECK(nodes_of(other).find("ScatterND(") != std::string::npos);
  }
}

TEST_CASE("a ScatterND that keeps the larger value is a ScatterElements on numbered rows") {
  const auto imported = import_text(R"(g (float[4,3] table, int64[N,5,1] places, float[N,5,3] x) => (float[4,3] y) {
    y = ScatterND<reduction = "max">(table, places, x)
  })");
  const std::string nodes = nodes_of(imported);
  CHECK(nodes.find("GatherND(") != std::string::npos);
  CHECK(nodes.find("ScatterElements(") != std::string::npos);
  CHECK(nodes.find("ScatterND(") == std::string::npos);
}

TEST_CASE("a size that --bind gives is named where the shapes do not fit, and its form where none is given") {
  const std::string model =
      R"(g (float[N,S,3] x) => (float[N,S,3] y) <float[4,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2}> {
    y = Add(x, w)
  })";
  frontend::ImportRequest request;
  request.spec.bindings = {{.symbol = ModelText("S"), .size = 5}};
  CHECK(reports(import_text(model, request).problems(), Code::kBadModel, "--bind S=5"));
  request.spec.bindings.front().size = 4;
  CHECK(import_text(model, request).ok());
  CHECK(reports(import_text(model).problems(), Code::kUnresolvedShape, "=batch if it is the batch too"));
}
