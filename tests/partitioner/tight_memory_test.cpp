// Plans where devices have hardly more memory than the model needs.

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "cost/in_flight.h"
#include "partitioner/candidates.h"
#include "partitioner/graphpipe/pipeline_dp.h"
#include "partitioner/graphpipe/search_space.h"
#include "partitioner/planner.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;

TEST_CASE("where nothing fits, the answer says by how much") {
  const ir::PlanGraph graph = tests::chain_graph(3, {.seconds = 1, .bytes = 1, .weight_bytes = 1 << 20}, Samples(4));
  ir::Cluster cluster = ir::equal_devices(3);
  for (ir::Device& device : cluster.devices) device.memory = Bytes(1 << 20);
  for (const char* name :
       {"auto", "graphpipe", "sequential", "equal-split", "model-parallel", "data-parallel", "exhaustive"}) {
    CAPTURE(name);
    const auto answer = plan(name, {.graph = &graph, .cluster = &cluster});
    REQUIRE_FALSE(answer.ok());
    CHECK(answer.problems().front().code == Code::kNoFeasiblePlan);
    CHECK(answer.problems().front().message.find("MiB") != std::string::npos);
  }
}

TEST_CASE("memory pressure leads to plans that fit") {
  const ir::PlanGraph graph = tests::chain_graph(8, {.seconds = 1, .bytes = 1000, .weight_bytes = 1000}, Samples(16));
  ir::Cluster cluster = ir::equal_devices(4);
  for (ir::Device& device : cluster.devices) device.memory = Bytes(18000);
  const auto answer = plan("graphpipe", {.graph = &graph, .cluster = &cluster});
  REQUIRE(answer.ok());
  for (const PlanCandidate& candidate : answer->candidates) {
    ir::Assignment assignment = candidate.assignment;
    CHECK(cost::in_flight(*build_stage_graph(graph, assignment), cluster).fits);
  }
}

TEST_CASE("with more memory a plan does not fit, then fits and is slowed, then fits freely") {
  const ir::PlanGraph graph = tests::chain_graph(4, {.seconds = 1, .bytes = 1000, .weight_bytes = 1000}, Samples(16));
  std::vector<FoundStage> stages;
  for (const ir::PlanNodeId node : graph.node_ids()) stages.push_back({.nodes = {node}});
  std::vector<MemoryFit> fits;
  for (int64_t memory = 1'000; memory <= 20'000; memory += 500) {
    ir::Cluster cluster = ir::equal_devices(4);
    for (ir::Device& device : cluster.devices) device.memory = Bytes(memory);
    const PlanRequest request{.graph = &graph, .cluster = &cluster};
    fits.push_back(Candidates(request).add(stages));
  }
  CHECK(std::ranges::is_sorted(fits));
  for (const MemoryFit fit : {MemoryFit::kDoesNotFit, MemoryFit::kThrottled, MemoryFit::kFits})
    CHECK(std::ranges::count(fits, fit) > 0);
}

TEST_CASE("on two long branches, where all sums of stages differ, what a probe with memory finds fits") {
  constexpr size_t kBranch = 24;
  std::mt19937_64 random(20261126);
  std::uniform_real_distribution<double> seconds(0.5, 1.5);
  std::vector<std::vector<size_t>> predecessors{{}};
  std::vector<tests::NodePrice> prices;
  for (size_t i = 0; i < 2 * kBranch; ++i) predecessors.push_back({i % kBranch == 0 ? 0 : i});
  predecessors.push_back({kBranch, 2 * kBranch});
  for (size_t i = 0; i < predecessors.size(); ++i)
    prices.push_back({.seconds = seconds(random), .bytes = 1000, .weight_bytes = 1000});
  const ir::PlanGraph graph = tests::plan_graph(predecessors, prices, Samples(64));
  ir::Cluster cluster = ir::equal_devices(8);
  const NodeGroups items = group_nodes(graph);
  const SearchSpace space = space_of_tree(decompose(items.graph).value(), items, 0);
  REQUIRE(space.elements() > 20);  // turnarounds are rounded
  StageEvaluator evaluator(graph, cluster, Samples(4), 1, 8);
  Deadline deadline(1e9, nullptr);
  PipelineDp search(space, {&evaluator}, graph.batch, deadline);
  int yes = 0, no = 0;
  for (int64_t memory : {60'000, 120'000, 180'000}) {
    for (ir::Device& device : cluster.devices) device.memory = Bytes(memory);
    const PlanRequest request{.graph = &graph, .cluster = &cluster};
    for (double t : {20.0, 24.0, 30.0}) {
      CAPTURE(memory);
      CAPTURE(t);
      const auto found =
          search.probe(t, {.devices = 8, .stages = 6, .memory = static_cast<double>(memory), .blind = false});
      ++(found ? yes : no);
      if (found) CHECK(Candidates(request).add(*found) != MemoryFit::kDoesNotFit);
    }
  }
  CHECK(yes > 1);
  CHECK(no > 1);
}

TEST_CASE("exhaustive search has a plan where all that look best turn out not to fit") {
  const ir::PlanGraph graph = tests::random_dag(3, 10, 1, Samples(8));
  ir::Cluster cluster = ir::equal_devices(4);
  cluster.levels = {{.group = 4, .latency = Seconds(0.125), .bandwidth = BytesPerSecond(4)}};
  int tried = 0;
  PlanRequest request{.graph = &graph, .cluster = &cluster};
  request.evaluate = [&tried](const ir::Assignment& plan) {
    ++tried;
    const bool is_slowest = plan.choice.size() == 1 && plan.choice.begin()->devices.size() == 1;
    return is_slowest ? 1.0 : kInfinity;
  };
  const auto answer = plan("exhaustive", request);
  REQUIRE(answer.ok());
  CHECK(answer->candidates.front().assignment.choice.size() == 1);
  CHECK(tried > (1 << 16));
}
