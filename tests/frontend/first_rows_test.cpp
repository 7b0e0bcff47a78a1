// The first rows of an axis that holds several rows of each sample.

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::import_text;
using graphpipe::testing::nodes_of;
using graphpipe::testing::reports;

namespace {

/// A class token before the 5 patches of each of 4 frames, x[:batch] of them all, and what reads it.
std::string class_token(const std::string& reader) {
  return R"(g (float[N,4,5,2] x) => (float[N,2] y) <float[1,1,2] token = {1, 2}, int64[1] zero = {0},
    float[1,6,2] positions = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, int64[1] one = {1}, int64[1] two = {2}, int64 first = {0}, int64 second = {1}> {
    all = Shape(x)
    batch = Shape<start = 0, end = 1>(x)
    frames = Constant<value_ints = [4]>()
    rows = Mul(batch, frames)
    rest = Constant<value_ints = [5, 2]>()
    ones = Constant<value_ints = [1, 2]>()
    patch_shape = Concat<axis = 0>(rows, rest)
    token_shape = Concat<axis = 0>(rows, ones)
    patches = Reshape(x, patch_shape)
    tokens = Expand(token, token_shape)
    joined = Concat<axis = 1>(tokens, patches)
    placed = Add(joined, positions)
    taken = Slice(placed, zero, batch, zero)
    )" + reader +
         "}";
}

}  // namespace

TEST_CASE("a token that is the same in all rows is taken from each sample's own") {
  for (const char* reader : {"y = Gather<axis = 1>(taken, first)", "t = Slice(taken, zero, one, one) y = Flatten(t)"}) {
    const std::string nodes = nodes_of(import_text(class_token(reader)));
    INFO(nodes);
    CHECK(nodes.find(" : f32[B,4,6,2]") != std::string::npos);
    CHECK(nodes.find("{axes=[1], ends=[1], starts=[0], steps=[1]} : f32[B,1,6,2]") != std::string::npos);
    CHECK(nodes.find(": f32[B,2]") != std::string::npos);
  }
}

TEST_CASE("rows that are equal as a whole are taken at once") {
  const std::string nodes =
      nodes_of(import_text(R"(g (float[N,2] x) => (float[N,2] y) <float[1,2] w = {1, 2}, int64[1] zero = {0}> {
    batch = Shape<start = 0, end = 1>(x)
    four = Constant<value_ints = [4]>()
    rest = Constant<value_ints = [2]>()
    rows = Mul(batch, four)
    shape = Concat<axis = 0>(rows, rest)
    e = Expand(w, shape)
    t = Slice(e, zero, batch)
    y = Add(x, t) })"));
  CHECK(nodes.find(": f32[B,1,2]") != std::string::npos);
}

TEST_CASE("rows that differ between samples are refused, whoever reads them") {
  for (const char* reader : {"y = Gather<axis = 1>(taken, second)", "t = Slice(taken, zero, two, one) y = Flatten(t)",
                             "y = Flatten<axis = 1>(taken)", "t = Relu(taken) y = Gather<axis = 1>(t, first)"}) {
    const auto mixed = import_text(class_token(reader));
    REQUIRE(!mixed.ok());
    CHECK(reports(mixed.problems(), Code::kMixesSamples, "belong to the first samples"));
  }
}
