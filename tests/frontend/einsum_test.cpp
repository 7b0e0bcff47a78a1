// Einsum: what equations become.

#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::frontend;
using graphpipe::testing::import_text;
using graphpipe::testing::nodes_of;
using graphpipe::testing::reports;

namespace {

/// The nodes of an einsum whose operands, as ONNX's text form declares them, are its graph's inputs x, y, z.
std::string nodes_of_einsum(const std::string& equation, const std::string& inputs, const std::string& names) {
  return nodes_of(import_text("g (" + inputs + ") => (float[K] out) { out = Einsum<equation = \"" + equation + "\">(" +
                              names + ") }"));
}

Diagnostics problems_of_einsum(const std::string& equation, const std::string& inputs, const std::string& names) {
  const auto imported = import_text("g (" + inputs + ") => (float[K] out) { out = Einsum<equation = \"" + equation +
                                    "\">(" + names + ") }");
  REQUIRE(!imported.ok());
  return imported.problems();
}

}  // namespace

TEST_CASE("an equation of two operands stays one product, unless it is a stack of products of matrices") {
  CHECK(nodes_of_einsum("bqhd,bkd->bqk", "float[N,2,5,3] x, float[N,4,3] y", "x, y") ==
        "ReduceSum(%0) {axes=[2], keepdims=0} : f32[B,2,3]\n"
        "Transpose(%1) {perm=[0,2,1]} : f32[B,3,4]\nMatMul(%2, %3) : f32[B,2,4]\n");
  CHECK(nodes_of_einsum("bqhd,kd->bqhk", "float[N,2,5,3] x, float[4,3] y", "x, y") ==
        "Einsum(%0, %1) {equation=\"bqhd,kd->bqhk\"} : f32[B,2,5,4]\n");
  // Summed over the samples.
  CHECK(nodes_of_einsum("bhq,bhk->hqk", "float[N,5,2] x, float[N,5,4] y", "x, y") ==
        "Einsum(%0, %1) {equation=\"bhq,bhk->hqk\"} : f32[5,2,4] @mixed\n");
}

TEST_CASE("a stack of products of matrices is a MatMul, wherever its axes stand") {
  CHECK(nodes_of_einsum("bhqk,bhkd->bhqd", "float[N,5,2,4] x, float[N,5,4,3] y", "x, y") ==
        "MatMul(%0, %1) : f32[B,5,2,3]\n");
  CHECK(nodes_of_einsum("bqhd,bkhd->bhqk", "float[N,2,5,3] x, float[N,4,5,3] y", "x, y") ==
        "Transpose(%0) {perm=[0,2,1,3]} : f32[B,5,2,3]\nTranspose(%1) {perm=[0,2,3,1]} : f32[B,5,3,4]\n"
        "MatMul(%2, %3) : f32[B,5,2,4]\n");
  CHECK(nodes_of_einsum("bhqk,bkhd->bqhd", "float[N,5,2,4] x, float[N,4,5,3] y", "x, y") ==
        "Transpose(%1) {perm=[0,2,1,3]} : f32[B,5,4,3]\nMatMul(%0, %2) : f32[B,5,2,3]\n"
        "Transpose(%3) {perm=[0,2,1,3]} : f32[B,2,5,3]\n");
}

TEST_CASE("a permutation is a Transpose, and the order as it is nothing") {
  CHECK(nodes_of_einsum("bij->bji", "float[N,2,3] x", "x") == "Transpose(%0) {perm=[0,2,1]} : f32[B,3,2]\n");
  CHECK(nodes_of(import_text(R"(g (float[N,2] x) => (float[N,2] y) { a = Einsum<equation = "ij">(x) y = Relu(a) })")) ==
        "Relu(%0) : f32[B,2]\n");
}

TEST_CASE("labels of one operand alone are summed before the product") {
  CHECK(nodes_of_einsum("bij->b", "float[N,2,3] x", "x") == "ReduceSum(%0) {axes=[1,2], keepdims=0} : f32[B]\n");
  CHECK(nodes_of_einsum("bik,bj->bij", "float[N,2,3] x, float[N,4] y", "x, y") ==
        "ReduceSum(%0) {axes=[2], keepdims=0} : f32[B,2]\nEinsum(%2, %1) {equation=\"bi,bj->bij\"} : f32[B,2,4]\n");
}

TEST_CASE("a label that an operand repeats takes its diagonal") {
  CHECK(nodes_of_einsum("...ii->...i", "float[N,3,3] x", "x") ==
        "Reshape(%0) {shape=dims[B,9]} : f32[B,9]\n"
        "Slice(%1) {axes=[1], ends=[9], starts=[0], steps=[4]} : f32[B,3]\n");
}

TEST_CASE("ellipses broadcast at their last axes, and axes of size 1 meet larger ones") {
  CHECK(nodes_of_einsum("...ij,...jk->...ik", "float[N,5,2,3] x, float[1,3,4] y", "x, y") ==
        "Squeeze(%1) {axes=[0]} : f32[3,4]\nEinsum(%0, %2) {equation=\"baij,jk->baik\"} : f32[B,5,2,4]\n");
}

TEST_CASE("three operands become products of pairs, the cheapest first") {
  // (y z) takes 3 * 4 * 2 products for all samples, (x y) as many for each of them.
  CHECK(nodes_of_einsum("bi,ij,jk->bk", "float[N,30] x, float[30,40] y, float[40,2] z", "x, y, z") ==
        "Einsum(%1, %2) {equation=\"ij,jk->ik\"} : f32[30,2]\nEinsum(%0, %3) {equation=\"bi,ik->bk\"} : f32[B,2]\n");
}

TEST_CASE("the batch may be any letter") {
  CHECK(nodes_of_einsum("qi,iz->zq", "float[N,3] x, float[3,4] y", "x, y") ==
        "Einsum(%0, %1) {equation=\"qi,iz->zq\"} : f32[4,B]\n");
}

TEST_CASE("equations that mean nothing are refused, and so is the diagonal of the batch") {
  const std::string x = "float[N,3] x", both = "float[N,3] x, float[N,2] y";
  CHECK(reports(problems_of_einsum("ij->ik", x, "x"), Code::kBadModel, "no operand has"));
  CHECK(reports(problems_of_einsum("ij->ii", x, "x"), Code::kBadModel, "twice in the result"));
  CHECK(reports(problems_of_einsum("ijk->i", x, "x"), Code::kBadModel, "rank 2"));
  CHECK(reports(problems_of_einsum("bi,bi->b", both, "x, y"), Code::kBadModel, "two sizes"));
  CHECK(reports(problems_of_einsum("ij,jk,kl->il", both, "x, y"), Code::kBadModel, "more or fewer operands"));
  // ONNX's library, which infers shapes first, takes seconds for each of these.
  for (const char* dots : {"..i", "a..", "....", "...a...", "a...b...", "ij->i..", ". . .i"})
    CHECK(reports(problems_of_einsum(dots, x, "x"), Code::kBadModel, "one '...' per operand"));
  const auto diagonal = import_text(R"(g (float[N,3] x, float[N,3] y) => (float[N] out) {
    all = Einsum<equation = "ai,bi->ab">(x, y)
    out = Einsum<equation = "bb->b">(all) })");
  REQUIRE(!diagonal.ok());
  CHECK(reports(diagonal.problems(), Code::kMixesSamples, "diagonal"));
}
