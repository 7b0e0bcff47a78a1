#include "ir/verify_graph.h"

#include <doctest/doctest.h>

#include "ir/graph_text.h"

namespace graphpipe::ir {
namespace {

// The messages of all problems, joined; empty where the graph is sound.
std::string problems_of(std::string_view lines) {
  const Result<Graph> graph = parse_graph("graphpipe.graph/1\n" + std::string(lines));
  REQUIRE(graph.ok());
  std::string all;
  const Status status = verify_graph(*graph);
  for (const Diagnostic& problem : status.problems()) all += problem.message + "\n";
  return all;
}

bool reports(std::string_view lines, std::string_view message) {
  const std::string all = problems_of(lines);
  CAPTURE(all);
  return all.find(message) != std::string::npos;
}

TEST_CASE("each broken invariant is named") {
  const std::string x = "i0  %0 = data \"x\" : f32[B,4]\n";
  CHECK(problems_of(x + "n0  %1 = Relu(%0) : f32[B,4]\nout model \"y\" %1\n") == "");
  CHECK(reports(x + "n0  %1 = Relu(%2) : f32[B,4]\nn1  %2 = Relu(%0) : f32[B,4]\n", "before n1 makes it"));
  CHECK(reports(x + "n0  %1 = Relu(%1) : f32[B,4]\n", "before n0 makes it"));
  CHECK(reports(x + "value %1 : f32[]\n", "0 producers"));
  CHECK(reports(x + "i1  %1 = data \"y\" : f32[-3]\n", "dimension of -3"));
  CHECK(reports(x + "i1  %1 = data \"y\" : f32[281474976710656,4]\n", "2^48"));
  CHECK(reports("i0  %0 = data \"x\" : f32[B,4] @none\n", "holds B"));
  CHECK(reports("i0  %0 = data \"x\" : f32[B,4] @axis 1\n", "batch axis 1"));
  CHECK(reports("i0  %0 = data \"x\" : f32[B,4] @axis 7\n", "batch axis 7"));
  CHECK(reports("i0  %0 = data \"x\" : f32[B,B] @axis 0\n", "batch axis 0"));
  CHECK(reports(x + "n0  %1 = Relu(%0) : f32[B,4] phase I\n", "serves no forward node"));
  CHECK(reports(x + "n0  %1 = Relu(%0) : f32[B,4] serves n0\n", "forward node and serves"));
  CHECK(reports(x + "n0  %1 = F(%0) : f32[]\nn1  %2 = W(%0) : f32[] phase W serves n0\n"
                    "n2  %3 = I(%2) : f32[] phase I serves n0\n",
                "later phase W"));
}

TEST_CASE("parameters are checked against their data and each other") {
  CHECK(problems_of("p0  %w0 = weight trainable \"w\" file(\"m\", 0, 12) : f32[3]\n") == "");
  CHECK(reports("p0  %w0 = weight \"w\" file(\"m\", 0, 8) : f32[3]\n", "8 bytes; its type has 12"));
  CHECK(reports("p0  %w0 = weight \"w\" file(\"m\", -4, 12) : f32[3]\n", "offset -4"));
  CHECK(reports("p0  %w0 = weight \"w\" inline(\"00\") : f32[3]\n", "holds 1 bytes"));
  CHECK(reports("p0  %w0 = weight trainable \"w\" filled(1.0) : i64[3]\n", "floating-point"));
  CHECK(reports("p0  %w0 = buffer trainable \"w\" filled(1.0) : f32[3]\n", "not a weight"));
  CHECK(reports("p0  %w0 = weight by_rows \"w\" filled(1.0) : f32[3]\n", "by rows"));
  CHECK(reports("p0  %w0 = weight \"w\" filled(1.0) : f32[B]\n", "depend on the batch"));
  CHECK(reports("p0  %w0 = weight \"w\" filled(1.0) : f32[]\np1  %w1 = weight \"w\" filled(1.0) : f32[]\n",
                "have this name"));
}

TEST_CASE("what is stated of a loss fits the graph") {
  const std::string loss = "i0  %0 = data \"x\" : f32[]\nout loss \"x\" %0\n";
  const std::string label = "i1  %1 = label \"y\" : i64[B,4]\n" + loss.substr(loss.find("out"));
  const std::string counted = loss.substr(0, loss.find("out")) + label;
  CHECK(problems_of(loss + "loss samples\n") == "");
  CHECK(problems_of(counted + "loss counted \"y\" ignore -100 positions [1,2,3,4]\n") == "");
  CHECK(reports(loss, "the loss is not stated"));
  CHECK(reports("i0  %0 = data \"x\" : f32[]\nloss one\n", "no output has"));
  CHECK(reports(loss + "loss samples elements 0\n", "averages over 0"));
  CHECK(reports(loss + "loss counted \"y\"\n", "is no input"));
  CHECK(reports(loss + "loss counted \"x\"\n", "whole numbers"));
  for (const char* positions : {"[0,5]", "[2,2]", "[3,1]", "[2,3,0,1]", "[0,2,2,4]", "[-1,2]"})
    CHECK(reports(counted + "loss counted \"y\" positions " + positions + "\n", "out of order or not there"));
}

TEST_CASE("losses, loss scales and gradients are checked") {
  const std::string x = "i0  %0 = data \"x\" : f32[B,4]\n";
  CHECK(reports(x + "out loss \"x\" %0\n", "loss must be a floating-point scalar"));
  CHECK(reports("i0  %0 = loss_scale \"a\" : f32[]\ni1  %1 = loss_scale \"b\" : f32[]\n", "2 loss scales"));
  CHECK(reports("i0  %0 = loss_scale \"a\" : f32[2]\n", "loss scale must be"));
  CHECK(reports("i0  %0 = loss_scale \"a\" : f32[2]\nout loss \"loss\" %0\nloss samples term samples term one\n",
                "loss scale must hold 3 floating-point numbers"));
  CHECK(reports(x + "n0  %1 = F(%0) : f32[]\ngradients 2\ngradient %0 = %1\n", "another type than its value"));
  CHECK(reports("p0  %w0 = weight \"w\" filled(1.0) : f32[]\nshare p0 %0\n", "not trainable"));
}

TEST_CASE("all problems are reported at once, with the ONNX name") {
  const Result<Graph> graph = parse_graph(
      "graphpipe.graph/1\n"
      "i0  %0 = data \"x\" : f32[B,4]\n"
      "n0  %1 = Relu(%3) : f32[B,4] @axis 1 from \"first\"\n"
      "n1  %2 = Relu(%3) : f32[B,4] from \"second\"\n"
      "n2  %3 = Relu(%0) : f32[B,4] from \"third\"\n");
  REQUIRE(graph.ok());
  const Status status = verify_graph(*graph);
  REQUIRE(status.problems().size() == 3);
  CHECK(status.problems()[0].origin.raw() == "first");
  CHECK(status.problems()[1].origin.raw() == "second");
  CHECK(status.problems()[0].code == Code::kBadModel);
}

TEST_CASE("a graph whose references lead nowhere is reported, not followed") {
  Graph graph;
  graph.add_input({.name = ModelText("x")}, {});
  graph.outputs().push_back({.value = ValueId(99), .name = ModelText("y")});
  graph.inputs()[0].value = ValueId();
  const Status status = verify_graph(graph);
  CHECK(status.problems().size() == 2);
}

TEST_CASE("the further check runs on every node of a sound graph") {
  const Result<Graph> graph = parse_graph(
      "graphpipe.graph/1\ni0  %0 = data \"x\" : f32[B]\nn0  %1 = Good(%0) : f32[B]\nn1  %2 = Bad(%1) : f32[B]\n");
  REQUIRE(graph.ok());
  const Status status = verify_graph(*graph, [](const Graph& g, NodeId node) -> Status {
    if (g.node(node).op == "Bad") return Diagnostic{.code = Code::kUnsupportedOp, .message = "bad"};
    return Ok{};
  });
  REQUIRE(status.problems().size() == 1);
  CHECK(status.problems()[0].code == Code::kUnsupportedOp);
}

}  // namespace
}  // namespace graphpipe::ir
