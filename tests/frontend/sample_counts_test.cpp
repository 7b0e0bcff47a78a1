// The number of samples as data.

#include <doctest/doctest.h>

#include "tests/support/count_ops.h"
#include "tests/support/onnx_text.h"

using namespace graphpipe;
using namespace graphpipe::testing;

TEST_CASE("the number of samples can be used as a float, or as an integer, such as that less one of a variance") {
  const std::string less_one = "one = Constant<value_int = 1>() used = Sub(scalar, one)";
  for (const auto& [used, counts] : {std::pair<std::string, size_t>{"used = Identity(scalar)", 0}, {less_one, 1}}) {
    CAPTURE(used);
    const auto imported = import_text(text(R"(g (float[N,3] x) => (float[N,3] y) {
      n = Shape<end = 1>(x)
      axes = Constant<value_ints = [0]>()
      scalar = Squeeze(n, axes) )",
                                           used, " real = Cast<to = 1>(used) y = Div(x, real) }"));
    REQUIRE(imported.ok());
    CHECK(count_ops(imported->graph, "ScaleBySamples") == 1);
    CHECK(count_ops(imported->graph, "Sub") == counts);
  }
}

TEST_CASE("two views of each sample: a range from the number of samples on, and as many classes as views") {
  const auto imported = import_text(R"(g (float[N,4] x, float[N,4] y) => (float loss)
    <int64 zero = {0}, int64 one = {1}, int64 two = {2}> {
    z = Concat<axis = 0>(x, y)
    t = Transpose<perm = [1, 0]>(z)
    similarity = MatMul(z, t)
    size = Shape<start = 0, end = 1>(x)
    n = Squeeze(size)
    all = Mul(n, two)
    first = Range(n, all, one)
    second = Range(zero, n, one)
    labels = Concat<axis = 0>(first, second)
    loss = SoftmaxCrossEntropyLoss<reduction = "mean">(similarity, labels) })");
  for (const Diagnostic& problem : imported.problems()) MESSAGE(to_line(problem));
  REQUIRE(imported.ok());
  CHECK(nodes_of(imported).find("f32[2*B,2*B]") != std::string::npos);
  CHECK(count_ops(imported->graph, "Iota") == 2);
}
