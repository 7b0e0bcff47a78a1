#include "driver/report/profile_lines.h"

#include <doctest/doctest.h>

#include "cost/signature.h"
#include "ir/graph_text.h"

using namespace graphpipe;

namespace {

// Two Relus of one signature.
ir::Graph two_relus() {
  auto graph = ir::parse_graph(R"(graphpipe.graph/1
i0  %0 = data "x" : f32[B,8]
n0  %1 = Relu(%0) : f32[B,8] from "a"
n1  %2 = Relu(%1) : f32[B,8] from "b"
n2  %3 = Sigmoid(%2) : f32[B,8] from "c"
out model "y" %3
)");
  REQUIRE(graph.ok());
  return *graph;
}

}  // namespace

TEST_CASE("nodes of one signature share the mean of what was measured, of each pass where they have it") {
  const ir::Graph graph = two_relus();
  const auto profile = driver::profile_of_lines(
      "op 0 4 1e-6 - -\nop 1 4 3e-6 5e-6 -\nlink 2e-6 1e-9\n"
      "runtime 1e-5 2e-6 3e-6 4e-10 5e-6 6e-10 7e-10\n",
      graph);
  REQUIRE(profile.ok());
  REQUIRE(profile->operators.size() == 2);
  const ir::OpMeasurement& relu = profile->operators[0];
  CHECK(relu.signature.raw() == cost::op_signature(graph, graph.node(ir::NodeId(0))));
  CHECK(relu.samples == Samples(4));
  CHECK(relu.forward->count == doctest::Approx(2e-6));
  CHECK(relu.input_gradient->count == doctest::Approx(5e-6));
  CHECK_FALSE(relu.weight_gradient.has_value());
  // A node that no function runs costs nothing, but is known.
  CHECK(profile->operators[1].forward == Seconds(0));
  REQUIRE(profile->links.size() == 1);
  CHECK(profile->links[0].bandwidth.count == doctest::Approx(1e9));
  CHECK(profile->runtime.message_byte == 4e-10);
  CHECK(profile->runtime.add_byte == 7e-10);
}

TEST_CASE("lines that are not the program's are refused") {
  const ir::Graph graph = two_relus();
  for (const char* lines : {"", "op 9 4 1 1 1\n", "op 0 0 1 1 1\n", "op 0 4 1 1\n", "op 0 4 x 1 1\n", "op 0 4 -1 - -\n",
                            "op 0 4 nan - -\n", "link 1\n", "runtime 1 2 3\n", "link - 1\n", "hello\n"}) {
    CAPTURE(lines);
    CHECK_FALSE(driver::profile_of_lines(lines, graph).ok());
  }
}
