#include "partitioner/check_plan.h"

#include <doctest/doctest.h>

#include <limits>

#include "partitioner/planner.h"
#include "tests/support/case_count.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;
using ir::DeviceId;
using ir::PlanNodeId;
using ir::StageId;

TEST_CASE("plans of the planners pass; every mutation that breaks a rule is found") {
  const ir::PlanGraph graph = tests::chain_graph(6, {.seconds = 1, .bytes = 4, .weight_bytes = 100}, Samples(8));
  ir::Cluster cluster = ir::equal_devices(4);
  const auto answer = plan("graphpipe", {.graph = &graph, .cluster = &cluster, .stages = 3, .micro_batch = Samples(2)});
  REQUIRE(answer.ok());
  const PlanCandidate sound = answer->candidates.front();
  const auto check = [&](const ir::PlanGraph& g, const ir::Assignment& a, double objective) {
    return check_plan(g, cluster, a, {.stages = 3, .objective = objective});
  };
  REQUIRE(check(graph, sound.assignment, sound.objective).empty());
  const auto broken = [&](auto&& change) {
    ir::Assignment assignment = sound.assignment;
    change(assignment);
    return !check(graph, assignment, sound.objective).empty();
  };
  CHECK(broken([](ir::Assignment& a) { a.stage_of[PlanNodeId(0u)] = StageId(2u); }));
  CHECK(broken([](ir::Assignment& a) { a.stage_of[PlanNodeId(5u)] = StageId(7u); }));
  CHECK(broken([](ir::Assignment& a) { a.stage_of[PlanNodeId(5u)] = StageId(); }));
  CHECK(broken([](ir::Assignment& a) { a.stage_of.resize(5); }));
  CHECK(broken([](ir::Assignment& a) { a.choice.push_back(a.choice[StageId(0u)]); }));
  CHECK(broken([](ir::Assignment& a) { a.choice[StageId(1u)].devices = a.choice[StageId(0u)].devices; }));
  CHECK(broken([](ir::Assignment& a) { a.choice[StageId(1u)].devices.clear(); }));
  CHECK(broken([](ir::Assignment& a) { a.choice[StageId(1u)].devices = {DeviceId(9u)}; }));
  CHECK(broken([](ir::Assignment& a) { a.choice[StageId(1u)].micro_batch = Samples(9); }));
  CHECK(broken([](ir::Assignment& a) { a.choice[StageId(1u)].micro_batch = Samples(0); }));
  CHECK(broken([](ir::Assignment& a) { a.choice[StageId(1u)].k = 0; }));
  CHECK_FALSE(check(graph, sound.assignment, sound.objective * 1.01).empty());
  ir::PlanGraph apart = graph;
  apart.colocated = {{PlanNodeId(0u), PlanNodeId(5u)}};
  CHECK_FALSE(check(apart, sound.assignment, sound.objective).empty());
  for (ir::Device& device : cluster.devices) device.memory = Bytes(100);
  CHECK_FALSE(check(graph, sound.assignment, sound.objective).empty());
}

TEST_CASE("a plan takes alternatives of the degree of its stages, on devices that run them") {
  ir::PlanGraph graph = tests::chain_graph(2, {.seconds = 1, .bytes = 4}, Samples(4));
  for (ir::PlanNode& node : graph.nodes) node.alternatives = {{.degree = 1}, {.degree = 2}, {.degree = 2}};
  graph.kind_of_device = {0, 0, 0, 1};
  for (ir::PlanNode& node : graph.nodes) node.by_kind.resize(2);
  graph.nodes[PlanNodeId(0u)].refused_kinds = {1};
  const ir::Cluster cluster = ir::equal_devices(4);
  ir::Assignment sound;
  for (size_t i = 0; i < 2; ++i) {
    sound.stage_of.push_back(StageId(i));
    sound.choice.push_back({.devices = {DeviceId(2 * i)}, .degree = i == 0 ? 2 : 1});
    sound.alternative.push_back(i == 0 ? 2 : 0);
  }
  const auto is_sound = [&](auto&& change) {
    ir::Assignment plan = sound;
    change(plan);
    return check_plan(graph, cluster, plan, {.objective = std::numeric_limits<double>::quiet_NaN()}).empty();
  };
  CHECK(is_sound([](ir::Assignment&) {}));
  CHECK(is_sound([](ir::Assignment& a) { a.choice[StageId(1u)].devices = {DeviceId(3u)}; }));
  CHECK_FALSE(is_sound([](ir::Assignment& a) { a.choice[StageId(1u)].devices = {DeviceId(1u)}; }));  // of stage 0
  CHECK_FALSE(is_sound([](ir::Assignment& a) { a.choice[StageId(0u)].devices = {DeviceId(3u)}; }));  // 3 and 4
  CHECK_FALSE(is_sound([](ir::Assignment& a) { a.choice[StageId(0u)].degree = 1; }));
  CHECK_FALSE(is_sound([](ir::Assignment& a) { a.choice[StageId(0u)].degree = 0; }));
  CHECK_FALSE(is_sound([](ir::Assignment& a) { a.alternative[PlanNodeId(1u)] = 1; }));
  CHECK_FALSE(is_sound([](ir::Assignment& a) { a.alternative[PlanNodeId(1u)] = 3; }));
  CHECK_FALSE(is_sound([](ir::Assignment& a) { a.alternative[PlanNodeId(1u)] = -1; }));
  CHECK_FALSE(is_sound([](ir::Assignment& a) { a.alternative.resize(1); }));
  CHECK_FALSE(is_sound([](ir::Assignment& a) { a.alternative = {}; }));
  CHECK_FALSE(is_sound([](ir::Assignment& a) {
    std::swap(a.choice[StageId(0u)], a.choice[StageId(1u)]);
    std::swap(a.alternative[PlanNodeId(0u)], a.alternative[PlanNodeId(1u)]);
    a.choice[StageId(0u)].devices = {DeviceId(3u)};  // of the kind that does not run node 0
    a.choice[StageId(1u)].devices = {DeviceId(0u)};
  }));
}

TEST_CASE(
    "the checker's objective equals the cost model's on random plans, replicas and two levels of links included") {
  for (uint64_t seed = 0; seed < tests::case_count(14, 40); ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph = tests::random_dag(seed, 8, 3, Samples(8));
    ir::Cluster cluster = ir::equal_devices(4);
    cluster.levels = {{.group = 2, .latency = Seconds(0.1), .bandwidth = BytesPerSecond(8)},
                      {.group = 4, .latency = Seconds(0.3), .bandwidth = BytesPerSecond(2)}};
    // plan() ends the program where a planner's objective and the checker's differ.
    CHECK(plan("auto", {.graph = &graph, .cluster = &cluster}).ok());
  }
}
