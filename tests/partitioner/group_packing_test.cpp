// Stages that come into groups of near devices, and contractions that leave them places to end.

#include "partitioner/heterogeneous/group_packing.h"

#include <doctest/doctest.h>

#include <set>

#include "partitioner/graph/coarsen.h"
#include "partitioner/graphpipe/device_count_dp.h"
#include "partitioner/graphpipe/planner.h"
#include "partitioner/planner.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;

namespace {

/// One node for each stage, which has so many devices.
ir::Assignment a_stage_each(const std::vector<size_t>& devices) {
  ir::Assignment plan;
  size_t next = 0;
  for (const size_t count : devices) {
    ir::StageChoice choice{.micro_batch = Samples(8)};
    for (size_t i = 0; i < count; ++i) choice.devices.push_back(ir::DeviceId(next++));
    plan.stage_of.push_back(ir::StageId(plan.choice.size()));
    plan.choice.push_back(std::move(choice));
  }
  return plan;
}

std::set<size_t> groups_of(const ir::StageChoice& choice, size_t group) {
  std::set<size_t> groups;
  for (const ir::DeviceId device : choice.devices) groups.insert(device.index() / group);
  return groups;
}

struct Packed {
  ir::PlanGraph graph;
  ir::Assignment plan;
};

Packed packed(const std::vector<std::vector<size_t>>& predecessors, const std::vector<double>& bytes,
              const std::vector<size_t>& devices) {
  std::vector<tests::NodePrice> prices;
  for (const double sent : bytes) prices.push_back({.seconds = 1, .bytes = sent});
  Packed result{tests::plan_graph(predecessors, prices, Samples(8)), a_stage_each(devices)};
  const auto stages = build_stage_graph(result.graph, result.plan);
  REQUIRE(stages.ok());
  result.plan = packed_into_groups(ir::equal_devices(8), *stages, std::move(result.plan), 4);
  std::set<ir::DeviceId> used;
  size_t count = 0;
  for (const ir::StageChoice& choice : result.plan.choice) {
    used.insert(choice.devices.begin(), choice.devices.end());
    count += choice.devices.size();
  }
  CHECK(used.size() == count);  // none twice
  return result;
}

}  // namespace

TEST_CASE("stages that exchange much share a group, and none lies in two that fits into one") {
  // In the order of the stages the second one would lie in both groups.
  const Packed found = packed({{}, {0}, {1}, {2}}, {1, 100, 1, 1}, {3, 3, 1, 1});
  const auto& choice = found.plan.choice;
  for (const ir::StageChoice& each : choice) CHECK(groups_of(each, 4).size() == 1);
  CHECK(groups_of(choice[ir::StageId(1u)], 4) == groups_of(choice[ir::StageId(2u)], 4));
}

TEST_CASE("a stage larger than a group begins with whole ones, and what is left over lies where devices are free") {
  const Packed found = packed({{}, {0}, {1}}, {1, 1, 1}, {1, 5, 2});
  const auto& choice = found.plan.choice;
  CHECK(groups_of(choice[ir::StageId(1u)], 4).size() == 2);
  CHECK(groups_of(choice[ir::StageId(0u)], 4) == groups_of(choice[ir::StageId(2u)], 4));
}

TEST_CASE("three stages that fill no group together still get devices") {
  const Packed found = packed({{}, {0}, {1}}, {1, 1, 1}, {3, 3, 2});
  for (const size_t stage : {0, 1}) CHECK(groups_of(found.plan.choice[ir::StageId(stage)], 4).size() == 1);
}

TEST_CASE("contractions keep a node apart from its reader that sends on much less than it receives") {
  // Two branches of a heavy node and a mean; a small node reads both means.
  const std::vector<std::vector<size_t>> predecessors{{}, {0}, {}, {2}, {1, 3}, {4}};
  const std::vector<double> sent{100, 1, 100, 1, 1, 1}, seconds{10, 0.1, 10, 0.1, 0.1, 10};
  std::vector<tests::NodePrice> prices;
  for (size_t i = 0; i < sent.size(); ++i) prices.push_back({.seconds = seconds[i], .bytes = sent[i]});
  const ir::PlanGraph graph = tests::plan_graph(predecessors, prices, Samples(8));
  const auto set_of = [&](bool keeps, size_t node) {
    for (const auto& set : coarsen(graph, group_nodes(graph), {.parts = 12, .keeps_narrow_ends = keeps}))
      if (std::ranges::find(set, ir::PlanNodeId(node)) != set.end()) return set;
    return std::vector<ir::PlanNodeId>{};
  };
  CHECK(set_of(true, 1) != set_of(true, 4));
  CHECK(set_of(false, 1) == set_of(false, 4));
}

TEST_CASE("graphpipe gives branches a host each where only their ends send little") {
  // Four branches of four nodes, which send much, on four hosts of four devices; the mean at the end sends little.
  std::vector<std::vector<size_t>> predecessors;
  std::vector<tests::NodePrice> prices;
  std::vector<size_t> ends;
  for (size_t branch = 0; branch < 4; ++branch)
    for (size_t i = 0; i < 4; ++i) {
      predecessors.push_back(i == 0 ? std::vector<size_t>{} : std::vector{predecessors.size() - 1});
      prices.push_back({.seconds = 1, .bytes = i == 3 ? 1.0 : 1000.0});
      if (i == 3) ends.push_back(predecessors.size() - 1);
    }
  predecessors.push_back(ends);
  prices.push_back({.seconds = 0.1, .bytes = 1});
  const ir::PlanGraph graph = tests::plan_graph(predecessors, prices, Samples(64));
  ir::Cluster cluster = ir::equal_devices(16);
  cluster.levels = {{.group = 4, .latency = Seconds(0), .bandwidth = BytesPerSecond(1e9)},
                    {.group = 16, .latency = Seconds(0), .bandwidth = BytesPerSecond(10)}};
  const auto answer = plan(kGraphPipe, {.graph = &graph, .cluster = &cluster});
  REQUIRE(answer.ok());
  CHECK(answer->candidates.front().step_seconds < 1.15 * 3.1 * 64);
}

TEST_CASE("a branch shares a host with what it feeds where every device has work") {
  // A branch of four nodes whose end sends little, one of three that sends much to the node which joins them: on two
  // hosts of four devices each of the eight nodes has a device.
  const std::vector<std::vector<size_t>> predecessors{{}, {0}, {1}, {2}, {}, {4}, {5}, {3, 6}};
  std::vector<tests::NodePrice> prices(8, {.seconds = 1, .bytes = 1000});
  prices[3].bytes = 1;
  const ir::PlanGraph graph = tests::plan_graph(predecessors, prices, Samples(64));
  ir::Cluster cluster = ir::equal_devices(8);
  cluster.levels = {{.group = 4, .latency = Seconds(0), .bandwidth = BytesPerSecond(1e9)},
                    {.group = 8, .latency = Seconds(0), .bandwidth = BytesPerSecond(10)}};
  const SearchGraph small = search_graph(graph, 128);
  SearchSpace space = space_of_tree(small.tree, small.groups, 0);
  find_shapes(small.small.graph, space);
  StageEvaluator evaluator(small.small.graph, cluster, Samples(1), 1, 8, {.level = 0});
  Deadline deadline(kInfinity, nullptr);
  const SearchLimits limits{.devices = 8, .memory = kInfinity, .group = 4};
  const auto found = DeviceCountDp(space, evaluator, Samples(1), limits, deadline).probe(3.1);
  REQUIRE(found);
  CHECK(found->stages.size() == 8);
  CHECK(found->t < 3.1);
}
