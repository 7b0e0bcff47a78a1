#include "ir/graph_text.h"

#include <doctest/doctest.h>

#include "ir/verify_graph.h"
#include "tests/support/random_graph.h"

namespace graphpipe::ir {
namespace {

constexpr std::string_view kExample =
    "graphpipe.graph/1\n"
    "i0  %0 = data \"image\" : f32[B,3,56,56]\n"
    "i1  %6 = loss_scale \"scale\" : f32[]\n"
    "p0  %w1 = weight trainable \"conv.weight\" also \"tied\" file(\"model.onnx\", 128, 6912) : f32[64,3,3,3]\n"
    "p1  %w4 = constant \"half\" filled(0.5) : f32[]\n"
    "n0  %2 = Conv(%0, %w1, _) {pads=[1,1,1,1], group=1} : f32[B,64,56,56] from \"Conv_12\", \"\\x0aodd\\x22\"\n"
    "n1  %3 = ReduceSum(%2) {axes=[], keepdims=0, shape=dims[2*B,B^2,7]} : f32[] @mixed\n"
    "n2  %5 = Mul(%3, %6) {alpha=1.0, tiny=1e-300, scales=real[0.5,2.0], mode=\"a b\"} : f32[] @mixed\n"
    "n3  %7 = ReluGrad(%2, %2) : f32[B,64,56,56] phase I serves n0 sums %2\n"
    "n4  %8 = ConvGradWeight(%7, %0) : f32[64,3,3,3] phase W serves n0\n"
    "out loss \"loss\" %5\n"
    "loss counted elements 2 \"image\" ignore -100 positions [1,4,6,9] compares\n"
    "gradients 6\n"
    "gradient %2 = %7\n"
    "share p0 %8\n";

TEST_CASE("the example reads, and prints as it stood but for the order of attributes") {
  const Result<Graph> graph = parse_graph(kExample);
  REQUIRE(graph.ok());
  CHECK(graph->node(NodeId(0)).origins[1].raw() == "\nodd\"");
  CHECK(graph->node(NodeId(1)).attributes.get_shape("shape") == Shape{Dim::batch(2), Dim{1, 2}, Dim::fixed(7)});
  CHECK_FALSE(graph->node(NodeId(0)).inputs[2].valid());
  CHECK(graph->value(ValueId(0)).batch == BatchKind::kAxis);
  CHECK(graph->value(ValueId(3)).batch == BatchKind::kMixed);
  CHECK(graph->gradient_of()[ValueId(2)] == ValueId(7));
  CHECK(print_node(*graph, NodeId(4)) == "n4  %8 = ConvGradWeight(%7, %0) : f32[64,3,3,3] phase W serves n0");
  const Result<Graph> again = parse_graph(print_graph(*graph));
  REQUIRE(again.ok());
  CHECK(*again == *graph);
}

TEST_CASE("printing loses nothing: parse(print(g)) == g, and the graph is sound") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const Graph graph = tests::random_graph(seed);
    REQUIRE(verify_graph(graph).ok());
    const std::string printed = print_graph(graph);
    CAPTURE(printed);
    const Result<Graph> again = parse_graph(printed);
    REQUIRE(again.ok());
    CHECK(*again == graph);
    CHECK(print_graph(*again) == printed);
  }
}

TEST_CASE("every line with a mistake is reported, with its number") {
  const auto problems = parse_graph(
                            "graphpipe.graph/1\n"
                            "i0  %0 = data \"x\" : f32[B]\n"
                            "n0  %1 = Relu(%0 : f32[B]\n"
                            "n7  %1 = Relu(%0) : f32[B]\n"
                            "n1  %2 = Relu(%0) {axis=1, axis=2} : f33[B]\n"
                            "out model \"y\\q\" %2\n")
                            .problems();
  REQUIRE(problems.size() == 4);
  CHECK(problems[0].message.find("line 3, column 18") == 0);
  CHECK(problems[1].message.find("line 4,") == 0);
  CHECK(problems[2].message.find("twice") != std::string::npos);
  CHECK(problems[3].message.find("line 6,") == 0);
}

TEST_CASE("references must lead somewhere and ids be dense") {
  const auto first_problem = [](std::string_view lines) {
    const Result<Graph> graph = parse_graph("graphpipe.graph/1\n" + std::string(lines));
    return graph.ok() ? std::string("fine") : graph.problems().front().message;
  };
  CHECK(first_problem("i0  %0 = data \"x\" : f32[B]\n") == "fine");
  CHECK(first_problem("i0  %4000000000 = data \"x\" : f32[B]\n").find("gaps") != std::string::npos);
  CHECK(first_problem("n0  %0 = Relu(%1) : f32[B]\n").find("%1 is not defined") != std::string::npos);
  CHECK(first_problem("i0  %0 = data \"x\" : f32[B]\ni1  %0 = data \"y\" : f32[B]\n").find("twice") !=
        std::string::npos);
  CHECK(first_problem("i0  %0 = data \"x\" : f32[B]\ngradients 9\n").find("more gradients") != std::string::npos);
  CHECK(first_problem("i0  %0 = data \"x\" : f32[B^99]\n").find("up to 8") != std::string::npos);
  CHECK_FALSE(parse_graph("").ok());
  CHECK_FALSE(parse_graph("graphpipe.graph/2\n").ok());
}

}  // namespace
}  // namespace graphpipe::ir
