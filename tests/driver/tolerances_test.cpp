#include "driver/report/tolerances.h"

#include <doctest/doctest.h>

#include "ir/graph_text.h"

using namespace graphpipe;

namespace {

using Looser = std::map<std::string, double>;

ir::Graph parsed(const std::string& text) {
  auto graph = ir::parse_graph(text);
  for (const Diagnostic& problem : graph.problems()) MESSAGE(to_line(problem));
  REQUIRE(graph.ok());
  return std::move(graph).value();
}

// A mask that is stored in float16 loosens nothing; what is computed in bfloat16 loosens what is computed from it.
const char* const kMixed = R"(graphpipe.graph/1
i0  %0 = data "x" : f32[B,4]
i1  %1 = data "mask" : f16[B,4]
i2  %2 = loss_scale "loss_scale" : f32[]
p0  %w3 = weight trainable "plain" filled(0.5) : f32[4]
p1  %w4 = weight trainable "coarse" filled(0.5) : f32[4]
p2  %w5 = buffer "statistics" filled(0.5) : f32[4]
n0  %6 = Cast(%1) : f32[B,4]
n1  %7 = Mul(%0, %6) : f32[B,4]
n2  %8 = Mul(%7, %w3) : f32[B,4]
n3  %9 = Cast(%8) : bf16[B,4]
n4  %10 = Cast(%9) : f32[B,4]
n5  %11 = Mul(%10, %w4) : f32[B,4]
n6  %12 = Normalize(%10, %w5) : f32[B,4]
n7  %13 = Sum(%7, %2) : f32[] @mixed
n8  %14 = Mul(%7, %0) : f32[4] @none phase W serves n2
n9  %15 = Mul(%10, %0) : f32[4] @none phase W serves n5
out model "y" %11
out loss "loss" %13
share p0 %14
share p1 %15
)";

}  // namespace

TEST_CASE("one 16-bit value loosens the tolerance of what is computed from it, and of nothing else") {
  const ir::Graph graph = parsed(kMixed);
  const driver::Tolerances found = driver::tolerances_of(graph, {}, false);
  CHECK(found.tensors.usual == 1e-4);
  CHECK(found.tensors.looser == Looser{{"coarse", 0.05}, {"statistics", 0.05}, {"y", 0.05}});
  CHECK(found.tensors.of("plain") == 1e-4);
  CHECK(found.loss == 1e-5);
  CHECK(found.computes_in == ir::DType::kBFloat16);
  // The factor of clipped gradients is computed from all of them.
  CHECK(driver::tolerances_of(graph, {}, true).tensors.looser.at("plain") == 0.05);
}

TEST_CASE("the user's tolerance is every tensor's, and the loss keeps its distance") {
  const driver::Tolerances found = driver::tolerances_of(parsed(kMixed), 1e-3, false);
  CHECK(found.tensors.usual == 1e-3);
  CHECK(found.tensors.looser.empty());
  CHECK(found.loss == doctest::Approx(1e-4));
}

TEST_CASE("numbers that are only stored in 16 bits loosen nothing") {
  const std::string stored = R"(graphpipe.graph/1
i0  %0 = data "mask" : f16[B,4]
p0  %w1 = weight "table" filled(0.5) : bf16[4]
n0  %2 = Cast(%0) : f32[B,4]
n1  %3 = Cast(%w1) : bf16[4]
n2  %4 = Cast(%3) : f32[4]
n3  %5 = Mul(%2, %4) : f32[B,4]
out model "y" %5
)";
  const driver::Tolerances found = driver::tolerances_of(parsed(stored), {}, false);
  CHECK(found.tensors.looser.empty());
  CHECK(found.computes_in == ir::DType::kFloat32);
}

namespace {

// A bias that BatchNorm follows behind a transpose, and one that reaches it by way of an activation, in float16.
const char* const kBiasBeforeNorm = R"(graphpipe.graph/1
i0  %0 = data "x" : f32[B,7,4]
p0  %w1 = weight trainable "zero" filled(0.5) : f32[4]
p1  %w2 = weight trainable "signal" filled(0.5) : f32[4]
p2  %w3 = weight trainable "positions" filled(0.5) : f32[7]
n0  %4 = Cast(%0) : f16[B,7,4]
n1  %5 = Transpose(%4) {perm=[0,2,1]} : f16[B,4,7]
n2  %6 = Cast(%5) : f32[B,4,7]
n3  %7 = BatchNormalizationGradInput(%6) : f32[B,4,7]
n4  %8 = Cast(%7) : f16[B,4,7]
n5  %9 = Transpose(%8) {perm=[0,2,1]} : f16[B,7,4]
n6  %10 = ReduceSum(%9) {axes=[0,1], keepdims=0} : f16[4] @none phase W serves n0
n7  %11 = Cast(%10) : f32[4] @none phase W serves n0
n8  %12 = ReluGrad(%9, %4) : f16[B,7,4]
n9  %13 = ReduceSum(%12) {axes=[0,1], keepdims=0} : f16[4] @none phase W serves n0
n10 %14 = Cast(%13) : f32[4] @none phase W serves n0
n11 %15 = ReduceSum(%9) {axes=[0,2], keepdims=0} : f16[7] @none phase W serves n0
n12 %16 = Cast(%15) : f32[7] @none phase W serves n0
share p0 %11
share p1 %14
share p2 %16
)";

}  // namespace

TEST_CASE("a gradient that BatchNorm makes zero is measured against the largest ones, in units of what its terms are") {
  const driver::Tolerances found = driver::tolerances_of(parsed(kBiasBeforeNorm), {}, false);
  CHECK(found.tensors.looser == Looser{{"positions", 0.01}, {"signal", 0.01}, {"zero", 0.01}});
  REQUIRE(found.tensors.floors.size() == 1);
  CHECK(found.tensors.floor_of("zero") * found.tensors.of("zero") == doctest::Approx(2.0 / 1024));
  CHECK(found.tensors.floor_of("signal") == 1e-3);
  // The sum for each position is none of those that BatchNorm makes zero.
  CHECK(found.tensors.floor_of("positions") == 1e-3);
  std::string wide = kBiasBeforeNorm;
  for (size_t at = 0; (at = wide.find("f16", at)) != std::string::npos;) wide.replace(at, 3, "f32");
  const driver::Tolerances in_float32 = driver::tolerances_of(parsed(wide), {}, false);
  REQUIRE(in_float32.tensors.floors.size() == 1);
  CHECK(in_float32.tensors.floor_of("zero") * in_float32.tensors.of("zero") == doctest::Approx(16 * 0x1p-23));
}

TEST_CASE("a tied parameter that has another gradient beside one of zero is measured as others are") {
  const std::string tied = std::string(kBiasBeforeNorm) + "share p0 %14\n";
  CHECK(driver::tolerances_of(parsed(tied), {}, false).tensors.floors.empty());
}

namespace {

// Biases that reach BatchNorm by way of a convolution without padding, a product, another shape and a mean of windows.
const char* const kBiasesAhead = R"(graphpipe.graph/1
i0  %0 = data "x" : f32[B,4,6,6]
p0  %w1 = weight trainable "kernel" filled(0.5) : f32[4,3,3,3]
p1  %w2 = weight trainable "matrix" filled(0.5) : f32[4,5]
p2  %w3 = weight trainable "convolved" filled(0.5) : f32[3]
p3  %w4 = weight trainable "both" filled(0.5) : f32[3]
p4  %w5 = weight trainable "multiplied" filled(0.5) : f32[5]
p5  %w6 = weight trainable "reshaped" filled(0.5) : f32[4]
p6  %w7 = weight trainable "rows" filled(0.5) : f32[6]
p7  %w8 = weight trainable "other" filled(0.5) : f32[3]
p8  %w9 = weight trainable "mean" filled(0.5) : f32[4]
n0  %10 = BatchNormalizationGradInput(%0) : f32[B,4,6,6]
n1  %11 = ConvGradInput(%10, %w1) {shape=dims[B,3,8,8]} : f32[B,3,8,8]
n2  %12 = ReduceSum(%11) {axes=[0,2,3], keepdims=0} : f32[3] @none phase W serves n0
n3  %13 = Add(%11, %11) : f32[B,3,8,8]
n4  %14 = ReduceSum(%13) {axes=[0,2,3], keepdims=0} : f32[3] @none phase W serves n0
n5  %15 = Reshape(%10) {shape=dims[B,4,36]} : f32[B,4,36]
n6  %16 = Transpose(%15) {perm=[0,2,1]} : f32[B,36,4]
n7  %17 = LinearGradInput(%16, %w2) : f32[B,36,5]
n8  %18 = ReduceSum(%17) {axes=[0,1], keepdims=0} : f32[5] @none phase W serves n0
n9  %19 = ReduceSum(%15) {axes=[0,2], keepdims=0} : f32[4] @none phase W serves n0
n10 %20 = ReduceSum(%10) {axes=[0,1,3], keepdims=0} : f32[6] @none phase W serves n0
n11 %21 = Exp(%11) : f32[B,3,8,8]
n12 %22 = Add(%11, %21) : f32[B,3,8,8]
n13 %23 = ReduceSum(%22) {axes=[0,2,3], keepdims=0} : f32[3] @none phase W serves n0
n14 %24 = ReduceSum(%10) {axes=[2,3], keepdims=0} : f32[B,4]
n15 %25 = ReduceMeanGrad(%24) {axes=[2,3], keepdims=0, shape=dims[B,4,6,6]} : f32[B,4,6,6]
n16 %26 = ReduceSum(%25) {axes=[0,2,3], keepdims=0} : f32[4] @none phase W serves n0
share p2 %12
share p3 %14
share p4 %18
share p5 %19
share p6 %20
share p7 %23
share p8 %26
)";

}  // namespace

TEST_CASE("a bias that BatchNorm takes away behind operators that treat all places alike has a gradient of zero") {
  const driver::Tolerances found = driver::tolerances_of(parsed(kBiasesAhead), {}, false);
  std::vector<std::string> zero;
  for (const auto& [name, floor] : found.tensors.floors) zero.push_back(name);
  CHECK(zero == std::vector<std::string>{"both", "convolved", "mean", "multiplied", "reshaped"});
}
