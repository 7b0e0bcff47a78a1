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
