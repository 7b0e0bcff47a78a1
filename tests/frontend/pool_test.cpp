// Pools and transposed convolutions: forms that the rows of the dictionary lack.

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::import_text;
using graphpipe::testing::nodes_of;
using graphpipe::testing::reports;

TEST_CASE("an average over a dilated window is a sum of frames, axis by axis, divided by the cells that count") {
  CHECK(nodes_of(import_text(R"(g (float[N,1,6] x) => (float[N,1,4] y) {
    y = AveragePool<kernel_shape = [2], dilations = [2]>(x) })")) ==
        "Frames(%0) {axis=2, length=3, step=1} : f32[B,1,4,3]\n"
        "Slice(%1) {axes=[3], ends=[3], starts=[0], steps=[2]} : f32[B,1,4,2]\n"
        "ReduceSum(%2) {axes=[3], keepdims=0} : f32[B,1,4]\n"
        "Scale(%3) {factor=0.5} : f32[B,1,4]\n");
  // At the edges one cell of two is a pad.
  const std::string padded = nodes_of(import_text(R"(g (float[N,1,6] x) => (float[N,1,6] y) {
    y = AveragePool<kernel_shape = [2], dilations = [2], pads = [1, 1]>(x) })"));
  CHECK(padded.starts_with("Pad("));
  CHECK(padded.find("Mul(") != std::string::npos);
}

TEST_CASE("a dilated window counts its cells without visiting them, and its constants are limited") {
  const auto with = [](const std::string& size, const std::string& kernel, ImportRequest request = {}) {
    return import_text("g (float[N,1," + size + "] x) => (float[N,1,K] y) { y = AveragePool<kernel_shape = [" + kernel +
                           "], dilations = [2], pads = [1, 1]>(x) }",
                       request);
  };
  // The first and the last of five windows have a cell in the pads.
  const std::string wide = nodes_of(with("4097", "2048"));
  CHECK(wide.find("f32[B,1,5,4095]") != std::string::npos);
  CHECK(wide.find("Mul(") != std::string::npos);
  ImportRequest request;
  request.limits.constant_elements = 5;
  CHECK(reports(with("6", "2", request).problems(), Code::kLimitExceeded, "5 constant numbers"));
  request.limits.constant_elements = 6;
  CHECK(with("6", "2", request).ok());
}

TEST_CASE("the output of indices counts through the whole tensor, and through the batch") {
  const auto imported = import_text(R"(g (float[N,3,4,4] x) => (float[N,3,2,2] y, int64[N,3,2,2] places) {
    y, places = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) })");
  const std::string nodes = nodes_of(imported);
  CHECK(nodes.find("delta=48") != std::string::npos);
  CHECK(nodes.find("delta=16") != std::string::npos);
  const auto uneven = import_text(R"(g (float[N,3,4,4] x) => (float[N,3,2,2] y, int64[N,3,2,2] places) {
    y, places = MaxPool<kernel_shape = [2, 2], strides = [2, 2], pads = [0, 0, 1, 1]>(x) })");
  REQUIRE(!uneven.ok());
  CHECK(reports(uneven.problems(), Code::kUnsupportedOp, "uneven pads"));
}

TEST_CASE("a transposed convolution gets the pads that give its output_shape, or auto_pad's") {
  const auto nodes_with = [](const std::string& attributes) {
    return nodes_of(
        import_text("g (float[N,1,3,3] x) => (float[K] y) { s = Constant<value_ints = [1,2,3,3]>() "
                    "w = ConstantOfShape(s) y = ConvTranspose<" +
                    attributes + ">(x, w) }"));
  };
  CHECK(nodes_with("auto_pad = \"SAME_UPPER\", strides = [2, 2]").find("pads=[0,0,1,1]") != std::string::npos);
  CHECK(nodes_with("auto_pad = \"SAME_LOWER\", strides = [2, 2]").find("pads=[1,1,0,0]") != std::string::npos);
  const std::string longer = nodes_with("output_shape = [10, 8], strides = [3, 2]");
  CHECK(longer.find("output_padding=[1,1], pads=[0,0,0,0]") != std::string::npos);
  CHECK(longer.find("f32[B,2,10,8]") != std::string::npos);
}

TEST_CASE("an output_padding below zero, or of no possible size, is refused where pads are computed") {
  for (const char* padding : {"-1", "-9223372036854775807", "1099511627777"}) {
    CAPTURE(padding);
    const auto imported = import_text(
        text("g (float[N,1,3,3] x) => (float[K] y) { s = Constant<value_ints = [1,2,3,3]>() w = ConstantOfShape(s) "
             "y = ConvTranspose<auto_pad = \"SAME_UPPER\", strides = [2, 2], output_padding = [0, ",
             padding, "]>(x, w) }"));
    REQUIRE_FALSE(imported.ok());
    CHECK(reports(imported.problems(), Code::kBadModel, "output_padding does not fit"));
  }
}

TEST_CASE("the mask of a Dropout is what it leaves of ones") {
  const std::string model = R"(g (float[N,3] x) => (float[N,3] y, bool[N,3] mask) {
    ratio = Constant<value_float = 0.25>()
    y, mask = Dropout(x, ratio) })";
  CHECK(nodes_of(import_text(model)) == "Full() {shape=dims[B,3], to=\"bool\", value=1.0} : bool[B,3]\n");
  ImportRequest request;
  request.spec.dropout = true;
  const std::string nodes = nodes_of(import_text(model, request));
  CHECK(nodes.find("Dropout(%1) {ratio=0.25}") != std::string::npos);
  CHECK(nodes.find("Mul(%0, %2)") != std::string::npos);
}

TEST_CASE("Col2Im sums blocks axis by axis") {
  CHECK(nodes_of(import_text(R"(g (float[N,4,3] x) => (float[N,2,4] y) {
    image = Constant<value_ints = [4]>()
    block = Constant<value_ints = [2]>()
    y = Col2Im(x, image, block) })")) ==
        "Reshape(%0) {shape=dims[B,2,2,3]} : f32[B,2,2,3]\nTranspose(%1) {perm=[0,1,3,2]} : f32[B,2,3,2]\n"
        "FramesGrad(%2) {axis=2, length=2, shape=dims[B,2,4], step=1} : f32[B,2,4]\n");
}

TEST_CASE("LpPool takes no root of a window of zeros, whose slope is infinite") {
  const std::string nodes = nodes_of(import_text(R"(g (float[N,1,4] x) => (float[N,1,2] y) {
    y = LpPool<kernel_shape = [2], strides = [2], p = 3>(x) })"));
  CAPTURE(nodes);
  const size_t root = nodes.rfind("Pow(");
  REQUIRE(root != std::string::npos);
  CHECK(nodes.rfind("Where(", root) != std::string::npos);
  CHECK(nodes.find("Where(", root) != std::string::npos);
}
