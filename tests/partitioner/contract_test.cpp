#include <doctest/doctest.h>

#include <algorithm>

#include "cost/iteration_time.h"
#include "cost/memory.h"
#include "partitioner/graph/coarsen.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;
using ir::PlanNodeId;
using ir::StageId;

namespace {

/// Sets in topological order of the contraction: the first half above, the second below.
ir::Assignment two_stages(size_t nodes) {
  ir::Assignment assignment;
  for (size_t i = 0; i < nodes; ++i) assignment.stage_of.push_back(StageId(i < nodes / 2 ? size_t{0} : size_t{1}));
  assignment.choice.push_back({.devices = {ir::DeviceId(0u)}, .micro_batch = Samples(2)});
  assignment.choice.push_back({.devices = {ir::DeviceId(1u), ir::DeviceId(2u)}, .micro_batch = Samples(2)});
  return assignment;
}

}  // namespace

TEST_CASE("coarsening keeps every node once, closes no cycle, and stops at its limits") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    ir::PlanGraph graph = tests::random_dag(seed, 30, 3, Samples(8));
    graph.nodes[PlanNodeId(9u)].scope = ir::SampleScope::kMicroBatch;
    const NodeGroups items = group_nodes(graph);
    const NodeSets sets = coarsen(graph, items, {.parts = 6});
    std::vector<int> seen(graph.nodes.size(), 0);
    for (const auto& set : sets) {
      CHECK(std::is_sorted(set.begin(), set.end()));
      for (PlanNodeId node : set) ++seen[node.index()];
      for (PlanNodeId node : set) CHECK((node == PlanNodeId(9u)) == (set.size() == 1 && set.front() == PlanNodeId(9u)));
    }
    CHECK(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
    const CoarseGraph small = contract(graph, sets);  // ends the program on a cycle
    CHECK(verify_plan_graph(small.graph).ok());
  }
}

TEST_CASE("a plan of the contracted graph costs what the plan costs that it stands for") {
  const ir::Cluster cluster = ir::equal_devices(3);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph = tests::random_sp_graph(seed, 24, Samples(8));
    const CoarseGraph small = contract(graph, coarsen(graph, group_nodes(graph), {.parts = 8}));
    REQUIRE(small.graph.nodes.size() < graph.nodes.size());
    REQUIRE(small.graph.nodes.size() >= 2);
    ir::Assignment coarse = two_stages(small.graph.nodes.size());
    ir::Assignment fine = expand(small, graph.nodes.size(), coarse);
    const auto coarse_stages = build_stage_graph(small.graph, coarse), fine_stages = build_stage_graph(graph, fine);
    REQUIRE(coarse_stages.ok());
    REQUIRE(fine_stages.ok());
    const auto same = [](double a, double b) { return a == doctest::Approx(b).epsilon(1e-9); };
    CHECK(same(cost::iteration_time(*coarse_stages, cluster).total(),
               cost::iteration_time(*fine_stages, cluster).total()));
    for (StageId stage : fine_stages->stage_ids())
      CHECK(cost::stage_memory(*coarse_stages, stage, Samples(4)).total() ==
            cost::stage_memory(*fine_stages, stage, Samples(4)).total());
  }
}

TEST_CASE("boundaries between stages stay fine, their insides do not") {
  const ir::PlanGraph graph = tests::chain_graph(40, {}, Samples(8));
  IdMap<PlanNodeId, StageId> stage_of;
  for (size_t i = 0; i < 40; ++i) stage_of.push_back(StageId(i / 20));
  const NodeSets sets = coarsen(graph, group_nodes(graph), {.parts = 4, .stage_of = &stage_of});
  CHECK(sets.size() < 16);
  for (const auto& set : sets) {
    for (PlanNodeId node : set) CHECK(stage_of[node] == stage_of[set.front()]);
    if (set.front() == PlanNodeId(19u) || set.front() == PlanNodeId(20u)) CHECK(set.size() == 1);
  }
}

TEST_CASE("many light branches side by side become few") {
  std::vector<std::vector<size_t>> predecessors(202);
  for (size_t i = 1; i <= 200; ++i) {
    predecessors[i] = {0};
    predecessors[201].push_back(i);
  }
  const ir::PlanGraph graph = tests::plan_graph(predecessors, {{.seconds = 1}}, Samples(8));
  CHECK(coarsen(graph, group_nodes(graph), {.parts = 20}).size() < 50);
}
