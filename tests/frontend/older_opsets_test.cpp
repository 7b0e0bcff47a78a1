// Models of older opsets mean what their own opset says: the same graph as the model that says it in a newer one.

#include "frontend/older_opsets.h"

#include <string>

#include "support/text.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::testing;

namespace {

std::string header(int opset) { return text("<ir_version: 10, opset_import: [\"\" : ", opset, "]>\n"); }

}  // namespace

TEST_CASE("below opset 11, a Resize scales places as they are and takes the lower neighbour") {
  for (const std::string mode : {"linear", "nearest"}) {
    CAPTURE(mode);
    const std::string inputs = "g (float[N,2,4,4] x) => (float[N,2,8,6] y) <float[4] s = {1, 1, 2, 1.6}> { y = ";
    const std::string own = nodes_of(
        import_text(text(header(13), inputs, "Resize<mode = \"", mode,
                         "\", coordinate_transformation_mode = \"asymmetric\", nearest_mode = \"floor\">(x, , s) }")));
    CHECK(nodes_of(import_text(text(header(10), inputs, "Resize<mode = \"", mode, "\">(x, s) }"))) == own);
    CHECK(nodes_of(import_text(text(header(9), inputs, "Upsample<mode = \"", mode, "\">(x, s) }"))) == own);
  }
}

TEST_CASE("below opset 11, the nearest neighbour of a smaller tensor is the upper one") {
  const auto resized = [](int opset, const std::string& sizes, const std::string& attributes, const char* scales) {
    return import_text(text(header(opset), "g (float[N,2,4,5] x) => (float[N,2,", sizes, "] y) <float[4] s = {", scales,
                            "}> { y = Resize<mode = \"nearest\"", attributes,
                            opset < 11 ? ">(x, s) }" : ">(x, , s) }"));
  };
  CHECK(nodes_of(resized(10, "2,3", "", "1, 1, 0.6, 0.6")) ==
        nodes_of(resized(13, "2,3", ", coordinate_transformation_mode = \"asymmetric\", nearest_mode = \"ceil\"",
                         "1, 1, 0.6, 0.6")));
  const auto mixed = resized(10, "8,3", "", "1, 1, 2, 0.6");
  REQUIRE_FALSE(mixed.ok());
  CHECK(reports(mixed.problems(), Code::kUnsupportedOp, "larger along one axis and smaller"));
}

TEST_CASE("opsets without the forms that these are written in are left to ONNX's converter") {
  const std::string nodes =
      nodes_of(import_text(header(4) + "g (float[2,4,6] x) => (float[2,4,6] y) { y = Softmax<axis = 1>(x) }"));
  CHECK(contains(nodes, ": f32[B,24]"));
}

TEST_CASE("values that are made have names of their own") {
  const auto imported = import_text(header(11) +
                                    R"(g (float[N,4,6] x, float[N,4,6] "y/rows") => (float[N,4,6] y, float[N,4,6] z) {
    y = Softmax<axis = 1>(x) z = Add(x, "y/rows") })");
  CHECK(imported.ok());
}

TEST_CASE("below opset 13, Softmax and its like compute over all axes from theirs on") {
  for (const std::string op : {"Softmax", "LogSoftmax", "Hardmax"})
    for (const int axis : {1, 2}) {
      CAPTURE(op);
      CAPTURE(axis);
      const std::string model = "g (float[N,4,6] x) => (float[N,4,6] y) { ";
      const std::string whole = text("s = Shape(x) f = Flatten(x) h = ", op, "<axis = 1>(f) y = Reshape(h, s) }");
      const std::string last = text("y = ", op, "<axis = 2>(x) }");
      const std::string old = text("y = ", op, "<axis = ", axis, ">(x) }");
      CHECK(nodes_of(import_text(header(11) + model + old)) ==
            nodes_of(import_text(header(13) + model + (axis == 1 ? whole : last))));
      if (axis == 1) {
        const std::string by_default = text("y = ", op, "(x) }");
        CHECK(nodes_of(import_text(header(11) + model + by_default)) ==
              nodes_of(import_text(header(13) + model + whole)));
      }
    }
}

TEST_CASE("a body may read the result of an older Softmax") {
  const auto imported = import_text(header(11) + R"(g (float[N,4,6] x, bool c) => (float[N,4,6] y) {
    s = Softmax<axis = 1>(x)
    y = If(c) <then_branch = then () => (float[N,4,6] a) { a = Identity(s) },
               else_branch = otherwise () => (float[N,4,6] b) { b = Softmax<axis = 1>(s) }> })");
  const std::string nodes = nodes_of(imported);
  CHECK(contains(nodes, ": f32[B,24]"));
}

TEST_CASE("below opset 14, a BatchNormalization may have outputs that nothing reads") {
  const auto imported = import_text(header(9) + R"(g (float[N,3,2] x) => (float[N,3,2] y) <
      float[3] s = {1, 1, 1}, float[3] b = {0, 0, 0}, float[3] mean = {0, 0, 0}, float[3] variance = {1, 1, 1}> {
    y, m, v, saved, saved2 = BatchNormalization(x, s, b, mean, variance) })");
  CHECK(contains(nodes_of(imported), "training_mode=1"));
}

TEST_CASE("below opset 7, the slopes of a PRelu are those of the channels") {
  const std::string nodes = nodes_of(import_text(header(6) + R"(g (float[2,4,4,4] x) => (float[2,4,4,4] y) <
      float[4] slope = {1, 2, 3, 4}> { y = PRelu(x, slope) })"));
  CHECK(contains(nodes, ": f32[4,1,1]"));
}

TEST_CASE("what a call of a local function leaves out is what the function says") {
  const auto imported = import_text(R"(<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
    g (float[N,4,6] x) => (float[N,4,6] y) { a = own.soft(x) b = own.soft<axis: int = 2>(a) y = own.outer(b) }
    <opset_import: ["" : 21], domain: "own">
    soft <axis: int = 1> (a) => (o) { o = Softmax<axis: int = @axis>(a) }
    <opset_import: ["" : 21, "own" : 1], domain: "own">
    outer (a) => (o) { o = own.soft(a) })");
  const auto handed = import_text(R"(<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
    g (float[N,4,6] x) => (float[N,4,6] y) { y = own.outer(x) }
    <opset_import: ["" : 21, "own" : 1], domain: "own">
    outer <deep> (a) => (o) { o = own.soft<axis: int = @deep>(a) }
    <opset_import: ["" : 21], domain: "own">
    soft <axis: int = 1> (a) => (o) { o = Softmax<axis: int = @axis>(a) })");
  CHECK(contains(nodes_of(handed), "Softmax(%0) {axis=1}"));
  const std::string nodes = nodes_of(imported);
  CHECK(contains(nodes, "Softmax(%0) {axis=1}"));
  CHECK(contains(nodes, "Softmax(%1) {axis=2}"));
  CHECK(contains(nodes, "Softmax(%2) {axis=1}"));
}

TEST_CASE("operators with a body of their schema are expanded in the bodies of others too") {
  const auto imported = import_text(R"(<ir_version: 10, opset_import: ["" : 23]>
    g (float[N,4,6] q, bool c) => (float[N,4,6] y) {
      y = If(c) <then_branch = then () => (float[N,4,6] a) { a = Attention<q_num_heads = 2, kv_num_heads = 2>(q, q, q) },
                 else_branch = otherwise () => (float[N,4,6] b) { b = Neg(q) }> })");
  CHECK(contains(nodes_of(imported), "Softmax"));
}

TEST_CASE("hundreds of operators with a body of their schema are expanded one by one") {
  // ONNX's library infers the whole model again for each, which takes longer than an import may.
  const int count = 400;
  std::string nodes;
  for (int i = 0; i < count; ++i)
    nodes += text("v", i + 1, " = Attention<q_num_heads = 2, kv_num_heads = 2>(v", i, ", v", i, ", v", i, ") ");
  const auto imported =
      import_text(text(header(23), "g (float[N,4,6] v0) => (float[N,4,6] v", count, ") { ", nodes, "}"));
  REQUIRE(imported.ok());
  int expanded = 0;
  for (const ir::NodeId node : imported->graph.node_ids())
    expanded += imported->graph.node(node).op == "Softmax" ? 1 : 0;
  CHECK(expanded == count);
}

TEST_CASE("bodies of calls whose outputs have one name, as those of branches may, are named apart") {
  std::string nodes;
  const std::string branch = "() => (float[N,4,6] y) { y = Attention<q_num_heads = 2, kv_num_heads = 2>(x, x, x) }";
  for (int i = 0; i < 200; ++i)
    nodes += text("v", i, " = If(c) <then_branch = t", i, " ", branch, ", else_branch = e", i, " ", branch, "> ");
  const auto imported =
      import_text(text(header(23), "g (float[N,4,6] x, bool c) => (float[N,4,6] v199) { ", nodes, "}"));
  CHECK(imported.ok());
}

TEST_CASE("the values of a schema's body have names that the model has not") {
  const auto nodes = [](const std::string& name) {
    return nodes_of(import_text(
        text(header(23), "g (float[N,4,6] x, float[N,4,6] \"", name, "\") => ", "(float[N,4,6] y, float[N,4,6] z) { ",
             "y = Attention<q_num_heads = 2, kv_num_heads = 2>(x, x, x) z = Neg(\"", name, "\") }")));
  };
  CHECK(contains(nodes("other"), "Neg(%1)"));
  // So the body of this call names the size of the batch, but for the model's own value of that name.
  CHECK(nodes("y/BatchSize__1") == nodes("other"));
}

TEST_CASE("the values of a schema's body are named by whole characters of a long name") {
  for (const size_t letters : {97, 98, 99, 100}) {
    const std::string name = std::string(letters, 'a') + "\xE2\x82\xAC\xE2\x82\xAC";  // two signs of the euro
    const auto imported = import_text(text(header(23), "g (float[N,4,6] x) => (float[N,4,6] \"", name, "\") { \"", name,
                                           "\" = Attention<q_num_heads = 2, kv_num_heads = 2>(x, x, x) }"));
    REQUIRE(imported.ok());
    size_t inside = 0;
    for (const ir::NodeId id : imported->graph.node_ids())
      for (const ModelText& origin : imported->graph.node(id).origins) {
        inside += origin.raw().find('/') != std::string::npos ? 1 : 0;
        for (std::string_view rest = origin.raw(); !rest.empty(); rest.remove_prefix(utf8_length(rest)))
          REQUIRE(utf8_length(rest) > 0);
      }
    CHECK(inside > 0);
  }
}

TEST_CASE("GroupNormalization of the opsets that deprecated it at once is refused by what it lacks") {
  const auto imported = import_text(header(18) + R"(g (float[N,4,3] x) => (float[N,4,3] y) <
      float[2] scale = {1, 2}, float[2] bias = {0, 1}> { y = GroupNormalization<num_groups = 2>(x, scale, bias) })");
  REQUIRE_FALSE(imported.ok());
  CHECK(reports(imported.problems(), Code::kUnsupportedOp, "convert the model to opset 21"));
}

TEST_CASE("a reduction over no axes squares or takes the logarithm all the same") {
  const auto reduced = [](const std::string& op) {
    return nodes_of(
        import_text(text("g (float[N,3] x) => (float[N,3] y) { y = ", op, "<noop_with_empty_axes = 1>(x) }")));
  };
  CHECK(contains(reduced("ReduceSumSquare"), "Mul(%0, %0)"));
  CHECK(contains(reduced("ReduceLogSum"), "Log(%0)"));
  CHECK(reduced("ReduceSum").empty());
}

TEST_CASE("a bound of Clip that may train, or is computed, is a value like others") {
  const auto clipped = [](const std::string& producer, const std::string& bound) {
    auto model = parse_onnx_text(text("<ir_version: 10, opset_import: [\"\" : 21], producer_name: \"", producer,
                                      "\">\ng (float[N,3] x) => (float[N,3] y) <float zero = {0}, float bound = {6}> {",
                                      " y = Clip(x, zero, bound) }"));
    model.mutable_graph()->mutable_initializer(1)->set_name(bound);
    model.mutable_graph()->mutable_node(0)->set_input(2, bound);
    return nodes_of(import_bytes(model.SerializeAsString()));
  };
  CHECK(contains(clipped("pytorch", "alpha"), "Greater("));
  CHECK(contains(clipped("pytorch", "317"), "{max=6"));
  CHECK(contains(clipped("tf2onnx", "alpha"), "Clip(%0) {max=6"));
  CHECK(contains(clipped("pytorch", "val_3"), "max=6"));
  const auto doubled = [](const std::string& bound) {
    auto model = parse_onnx_text(
        "<ir_version: 10, opset_import: [\"\" : 21], producer_name: \"pytorch\">\ng (float[N,3] x) => (float[N,3] y) "
        "<float bound = {6}> { twice = Add(bound, bound) y = Clip(x, twice) }");
    model.mutable_graph()->mutable_initializer(0)->set_name(bound);
    for (const int operand : {0, 1}) model.mutable_graph()->mutable_node(0)->set_input(operand, bound);
    return nodes_of(import_bytes(model.SerializeAsString()));
  };
  CHECK(contains(doubled("alpha"), "Less("));
  CHECK(contains(doubled("317"), "{min=12"));
  const std::string computed = nodes_of(import_text(R"(g (float[N,3] x) => (float[N,3] y) {
    axes = Constant<value_ints = [1]>() low = ReduceMin<keepdims = 0>(x) y = Clip(x, low) })"));
  CHECK(contains(computed, "Less("));
}

TEST_CASE("axes of a permutation may count from the last, as TorchScript writes them") {
  const auto imported = import_text("g (float[N,2,3] x) => (float[N,3,2] y) { y = Transpose<perm = [0, -1, 1]>(x) }");
  REQUIRE(imported.ok());
  CHECK(ir::print_graph(imported->graph).find("perm=[0,2,1]") != std::string::npos);
  CHECK(!import_text("g (float[N,2,3] x) => (float[N,3,2] y) { y = Transpose<perm = [0, -1, 2]>(x) }").ok());
  CHECK(
      reports(import_text("g (float[N,2,3] x) => (float[N,3,2] y) { y = Transpose<perm = [0, -4, 1]>(x) }").problems(),
              Code::kBadModel, "is not between"));
}
