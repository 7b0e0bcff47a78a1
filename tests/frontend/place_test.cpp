// Operators in which numbers say where elements go.

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::import_text;
using graphpipe::testing::nodes_of;
using graphpipe::testing::reports;

TEST_CASE("sequences are reversed by a look-up along their time axis, not along the batch") {
  const std::string nodes = nodes_of(import_text(R"(g (float[N,4,2] x, int64[N] lengths) => (float[N,4,2] y) {
    y = ReverseSequence<batch_axis = 0, time_axis = 1>(x, lengths) })"));
  CHECK(nodes.find("GatherElements(%0, ") != std::string::npos);
  CHECK(nodes.find("{axis=1} : f32[B,4,2]") != std::string::npos);
  const auto turned = import_text(R"(g (float[N,4] x, int64[4] lengths) => (float[N,4] y) {
    y = ReverseSequence<batch_axis = 1, time_axis = 0>(x, lengths) })");
  REQUIRE(!turned.ok());
  CHECK(reports(turned.problems(), Code::kMixesSamples, "order of the samples"));
}

TEST_CASE("a circular cache is written around its end") {
  const std::string nodes = nodes_of(import_text(R"(<ir_version: 11, opset_import: ["" : 24]>
  g (float[N,4,2] cache, float[N,2,2] rows, int64[N] first) => (float[N,4,2] y) {
    y = TensorScatter<mode = "circular">(cache, rows, first) })"));
  CHECK(nodes.find("Mod(") != std::string::npos);
  CHECK(nodes.find("{axis=1} : f32[B,4,2]") != std::string::npos);
}

TEST_CASE("a Compress by a constant is a look-up, one by data is refused with what to do") {
  const std::string nodes = nodes_of(import_text(R"(g (float[N,3] x) => (float[N,2] y) {
    kept = Constant<value_ints = [1, 0, 1]>()
    mask = Cast<to = 9>(kept)
    y = Compress<axis = 1>(x, mask) })"));
  CHECK(nodes.find("Gather(%0, %w1) {axis=1} : f32[B,2]") != std::string::npos);
  const auto by_data = import_text(R"(g (float[N,3] x, bool[3] mask) => (float[N,K] y) {
    y = Compress<axis = 1>(x, mask) })");
  REQUIRE(!by_data.ok());
  CHECK(reports(by_data.problems(), Code::kUnsupportedOp, "depends on data"));
}

TEST_CASE("bits are read as a type of the same size, and as no other") {
  const std::string head = "<ir_version: 11, opset_import: [\"\" : 26]> g (float[N,3] x) => ";
  CHECK(nodes_of(import_text(head + "(int32[N,3] y) { y = BitCast<to = 6>(x) }")) ==
        "BitCast(%0) {to=\"i32\"} : i32[B,3]\n");
  CHECK(!import_text(head + "(int64[N,3] y) { y = BitCast<to = 7>(x) }").ok());
}

TEST_CASE("transforms of an axis keep the samples, those of the batch axis are refused") {
  const std::string nodes = nodes_of(import_text(R"(g (float[N,16,1] x) => (float[N,3,5,2] y) {
    length = Constant<value_ints = [8]>()
    window = ConstantOfShape(length)
    step = Constant<value_int = 4>()
    y = STFT(x, step, window) })"));
  CHECK(nodes.find("Frames(%0) {axis=1, length=8, step=4} : f32[B,3,8,1]") != std::string::npos);
  CHECK(nodes.find("onesided=1} : f32[B,3,5,2]") != std::string::npos);
  const auto batch = import_text(R"(g (float[N,4,1] x) => (float[K,4,2] y) {
    axis = Constant<value_int = 0>()
    y = DFT(x, "", axis) })");
  REQUIRE(!batch.ok());
  CHECK(reports(batch.problems(), Code::kMixesSamples, "batch axis"));
}
