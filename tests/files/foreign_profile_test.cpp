#include <doctest/doctest.h>

#include <string>

#include "files/dnn_partitioning_profile.h"
#include "files/pipedream_profile.h"
#include "files/piper_profile.h"
#include "files/profile_formats.h"
#include "tests/support/test_data.h"

namespace graphpipe::files {
namespace {

std::string refusal(const Result<ir::ImportedProfile>& graph) {
  return graph.ok() ? std::string("fine") : graph.problems()[0].message;
}

const std::string kVariant =
    R"({"id": "vanilla", "timePerSample": 0.25, "parameterSize": 8, "memoryUsageA": 3, "memoryUsageB": 4,
        "syncTimeFw": {}, "syncTimeBw": {"9": 5}})";

std::string piper(const std::string& variants, const std::string& edge = R"({"sourceId": 4, "destId": 9,
    "communicationCost": 16})") {
  return R"({"maxDevices": 3, "bandwidth": 2.5e9, "mbsInBatch": 8, "nodes": [
      {"id": 4, "name": "a", "TMPCs": {"2": )" +
         variants + R"(, "10": )" + variants + R"(}},
      {"id": 9, "name": "b", "TMPCs": {"2": [)" +
         kVariant.substr(0, kVariant.rfind("\"9\"")) + R"(}}]}}], "edges": [)" + edge + "]}";
}

TEST_CASE("a Piper profile: degrees ascend by number, collectives belong to edges, slow layers are milliseconds") {
  const auto graph = parse_piper_profile(piper("[" + kVariant + "]"));
  REQUIRE(graph.ok());
  CHECK(graph->format == ir::ProfileFormat::kPiper);
  CHECK(graph->time_unit_seconds == 0.001);
  CHECK(graph->defaults.devices == 3);
  CHECK(graph->defaults.micro_batches == 8);
  CHECK_FALSE(graph->defaults.memory.has_value());
  const ir::PlanNode& first = graph->graph.nodes[ir::PlanNodeId(0)];
  CHECK(first.label.raw() == "4");
  CHECK(first.description.raw() == "a");
  REQUIRE(first.alternatives.size() == 2);
  CHECK(first.alternatives[0].degree == 2);
  CHECK(first.alternatives[1].degree == 10);
  const auto seconds = [](const auto& price) {
    return price.forward.at(1.0) + price.input_gradient.at(1.0) + price.weight_gradient.at(1.0);
  };
  CHECK(seconds(first) == doctest::Approx(0.25 * 0.001));
  CHECK(seconds(first.alternatives[1].seconds) == doctest::Approx(0.25 * 0.001));
  REQUIRE(graph->graph.values.size() == 1);
  CHECK(graph->graph.values[ir::PlanValueId(0)].bytes.at(1.0) == 16);
  REQUIRE(first.alternatives[0].to.size() == 1);
  CHECK(first.alternatives[0].to[0].neighbour == ir::PlanNodeId(1));
  CHECK(first.alternatives[0].to[0].bytes == 5);
  CHECK(first.alternatives[0].from.empty());
}

TEST_CASE("nodes are numbered in topological order, and the file keeps its own") {
  const auto graph = parse_pipedream_profile(
      "b -- Layer -- forward_compute_time=1.0, backward_compute_time=4.0, activation_size=8.0, parameter_size=2.0\n"
      "a -- Layer -- forward_compute_time=1.0, backward_compute_time=0.0, activation_size=6.0, parameter_size=0.0\n"
      "x -- Input0 -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=6.0, parameter_size=0.0\n"
      "\ta -- b\n\tx -- a\n");
  REQUIRE(graph.ok());
  CHECK(ir::verify_plan_graph(graph->graph).ok());
  REQUIRE(graph->graph.nodes.size() == 2);
  const ir::PlanNode &first = graph->graph.nodes[ir::PlanNodeId(0)], &second = graph->graph.nodes[ir::PlanNodeId(1)];
  CHECK(first.label.raw() == "a");
  CHECK(second.label.raw() == "b");
  CHECK(graph->graph.file_order.nodes == std::vector{ir::PlanNodeId(1), ir::PlanNodeId(0)});
  CHECK(graph->left_out == std::vector{ModelText("x")});
  CHECK(second.input_gradient.at(1.0) == 0.002);  // half of a backward with weights is their gradient
  CHECK(second.weight_gradient.at(1.0) == 0.002);
  CHECK(first.weights.empty());
  // A tensor that nothing reads is there too: it takes memory.
  REQUIRE(graph->graph.values.size() == 2);
  CHECK(graph->graph.values[ir::PlanValueId(1)].readers.empty());
  CHECK(graph->graph.values[ir::PlanValueId(1)].bytes.at(1.0) == 8);
}

TEST_CASE("what is wrong with a Piper profile is named by its path") {
  CHECK(refusal(parse_piper_profile("[]")) == "the file: must be an object");
  CHECK(refusal(parse_piper_profile("{}")) == "the profile has no layers");
  CHECK(refusal(parse_piper_profile(R"({"nodes": 3})")) == "nodes: must be a list");
  CHECK(refusal(parse_piper_profile(R"({"nodes": [7]})")) == "nodes[0]: must be an object");
  CHECK(refusal(parse_piper_profile(R"({"nodes": [{"id": 1.5}]})")) == "nodes[0].id: must be an integer");
  CHECK(refusal(parse_piper_profile(R"({"nodes": [{"id": 1}]})")) == "nodes[0]: has no TMPCs");
  CHECK(refusal(parse_piper_profile(piper("[]"))) == "nodes[0]: has no TMPCs");
  CHECK(refusal(parse_piper_profile(piper("[{}]"))) == "nodes[0]: has no timePerSample");
  CHECK(refusal(parse_piper_profile(piper("[{},{},{}]"))) == "nodes[0].TMPCs.2[2]: more than 2 variants");
  CHECK(refusal(parse_piper_profile(piper(R"([{"timePerSample": -1}])"))) ==
        "nodes[0].TMPCs.2[0].timePerSample: must be from 0 to 1e18");
  CHECK(refusal(parse_piper_profile(R"({"nodes": [{"id": 1, "TMPCs": {"01": []}}]})"))
            .find("nodes[0].TMPCs.01: must be a degree") == 0);
  const std::string good = "[" + kVariant + "]";
  CHECK(refusal(parse_piper_profile(piper(good, R"({"sourceId": 4, "destId": 5, "communicationCost": 1})"))) ==
        "edges[0].destId: names no node");
  CHECK(refusal(parse_piper_profile(piper(good, R"({"sourceId": 4, "destId": 9})"))) ==
        "edges[0]: has no communicationCost");
  CHECK(refusal(parse_piper_profile(piper(good, R"({"sourceId": 9, "destId": 9, "communicationCost": 1})"))) != "fine");
}

std::string dnn(const std::string& more_of_node, const std::string& edges) {
  return R"({"maxFPGAs": 2, "maxCPUs": 1, "maxSizePerFPGA": 100, "nodes": [
      {"id": 1, "supportedOnFpga": 1, "fpgaLatency": 2, "cpuLatency": 20, "isBackwardNode": false, "size": 10)" +
         more_of_node + R"(},
      {"id": 2, "supportedOnFpga": false, "fpgaLatency": 3, "cpuLatency": 1, "isBackwardNode": true, "size": 0,
       "colorClass": 7}], "edges": [)" +
         edges + "]}";
}

TEST_CASE("a dnn-partitioning profile is read in milliseconds") {
  const auto graph = parse_dnn_partitioning_profile(
      dnn(R"(, "colorClass": null, "layerId": "x")", R"({"sourceId": 1, "destId": 2, "cost": 4, "size": 64})"));
  REQUIRE(graph.ok());
  CHECK(graph->defaults.cpus == 1);
  CHECK(graph->defaults.memory == 100);
  const ir::PlanNode &first = graph->graph.nodes[ir::PlanNodeId(0)], &second = graph->graph.nodes[ir::PlanNodeId(1)];
  CHECK(first.forward.at(1.0) == 2 * 0.001);
  CHECK(first.by_kind[1].forward.at(1.0) == 20 * 0.001);
  CHECK(first.host_transfer.at(1.0) == 4 * 0.001);
  CHECK(first.buffer_bytes == Bytes(10));
  CHECK(second.input_gradient.at(1.0) == 3 * 0.001);
  CHECK(second.forward.is_zero());
  CHECK(second.is_backward);
  CHECK(second.refused_kinds == std::vector{0});
  REQUIRE(graph->graph.colocated.size() == 1);
  CHECK(graph->graph.colocated[0] == std::vector{ir::PlanNodeId(1)});
}

TEST_CASE("what is wrong with a dnn-partitioning profile is named by its path") {
  CHECK(refusal(parse_dnn_partitioning_profile(dnn(R"(, "layerId": {"a": [1]})", ""))) == "fine");
  CHECK(refusal(parse_dnn_partitioning_profile(dnn(R"(, "colorClass": "red")", ""))) ==
        "nodes[0].colorClass: must be an integer");
  CHECK(refusal(parse_dnn_partitioning_profile(dnn("", R"({"sourceId": 1, "destId": 2})"))) == "edges[0]: has no cost");
  CHECK(refusal(parse_dnn_partitioning_profile(
            dnn("", R"({"sourceId": 1, "destId": 2, "cost": 1}, {"sourceId": 1, "destId": 3, "cost": 2})"))) ==
        "edges[1].destId: names no node");
  CHECK(refusal(parse_dnn_partitioning_profile(
            dnn("", R"({"sourceId": 1, "destId": 2, "cost": 1}, {"sourceId": 2, "destId": 1, "cost": 2})"))) ==
        "it is on or behind a cycle of edges");
  CHECK(refusal(parse_dnn_partitioning_profile(R"({"nodes": [{"id": 1, "supportedOnFpga": 2}]})")) ==
        "nodes[0].supportedOnFpga: must be true or false");
}

TEST_CASE("a split places every layer once, backward layers with their class") {
  auto graph = parse_dnn_partitioning_profile(dnn(R"(, "colorClass": 7)", ""));
  REQUIRE(graph.ok());
  const auto split = parse_dnn_partitioning_split(
      R"({"fpgas": [{"nodes": []}, {"load": -1, "nodes": [1]}], "cpus": [{"nodes": []}], "maxLoad": -1})", graph->graph,
      2);
  REQUIRE(split.ok());
  REQUIRE(split->choice.size() == 1);
  for (const ir::StageId stage : split->stage_of) CHECK(stage == ir::StageId(0));
  CHECK(split->choice[ir::StageId(0)].devices == std::vector{ir::DeviceId(1)});
  const auto refused = [&](std::string_view text) {
    const auto bad = parse_dnn_partitioning_split(text, graph->graph, 2);
    return bad.ok() ? std::string("fine") : bad.problems()[0].message;
  };
  CHECK(refused(R"({"cpus": [{"nodes": [2]}]})") == "fine");
  CHECK(refused(R"({"fpgas": [{"nodes": [1, 1]}]})") == "fpgas[0].nodes[1]: is on two devices");
  CHECK(refused(R"({"fpgas": [{"nodes": [3]}]})") == "fpgas[0].nodes[0]: names no node");
  CHECK(refused(R"({"fpgas": [{"nodes": {}}]})") == "fpgas[0].nodes: must be a list");
  CHECK(refused("{}") == "it is on no device of the split");
}

TEST_CASE("the published profiles are read whole") {
  struct Row {
    const char* file;
    size_t layers, edges;
    double seconds, unit;
  };
  for (const Row& row : {Row{"bert32a100.json", 37, 67, 0.9729, 1}, Row{"resnet.json", 177, 193, 0.462381, 0.001}}) {
    CAPTURE(row.file);
    const auto graph = read_piper_profile(tests::data_path("piper/") + row.file);
    REQUIRE(graph.ok());
    CHECK(graph->graph.nodes.size() == row.layers);
    CHECK(graph->graph.file_order.edges.size() == row.edges);
    CHECK(graph->time_unit_seconds == row.unit);
    double seconds = 0;
    for (const ir::PlanNode& node : graph->graph.nodes)
      seconds += node.forward.at(1.0) + node.input_gradient.at(1.0) + node.weight_gradient.at(1.0);
    CHECK(seconds == doctest::Approx(row.seconds).epsilon(1e-4));
  }
  for (const Row& row :
       {Row{"layer-bert24_training", 64, 110, 0.2178}, Row{"layer-inceptionv3_inference", 326, 363, 0.3110},
        Row{"operator-bert_l-12_training", 2012, 2751, 1.892}, Row{"operator-resnet50_training", 1243, 1806, 0.6849}}) {
    CAPTURE(row.file);
    const auto graph =
        read_dnn_partitioning_profile(tests::data_path("dnn-partitioning/throughput/") + row.file + ".json");
    REQUIRE(graph.ok());
    CHECK(graph->graph.nodes.size() == row.layers);
    CHECK(graph->graph.file_order.edges.size() == row.edges);
    double seconds = 0;
    for (const ir::PlanNode& node : graph->graph.nodes)
      seconds += node.forward.at(1.0) + node.input_gradient.at(1.0) + node.weight_gradient.at(1.0);
    CHECK(seconds == doctest::Approx(row.seconds).epsilon(1e-3));
  }
}

TEST_CASE("every format is found by its name, and refuses what is none of its files") {
  const std::string other = tests::data_path("README.md");
  for (const ProfileFormatEntry& format : profile_formats()) {
    CAPTURE(format.name);
    CHECK(find_profile_format(format.name) == &format);
    CHECK_FALSE(format.read(other).ok());
  }
  CHECK(find_profile_format("graphpipe") == nullptr);
}

}  // namespace
}  // namespace graphpipe::files
