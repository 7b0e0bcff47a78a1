// No plan holds less than the bound that refuses models without a search.

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "cost/lower_bound.h"
#include "cost/memory.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using ir::StageId;

namespace {

/// Frozen weights, weights that two nodes share, buffers, and first nodes that nothing is learned from.
ir::PlanGraph graph_of_all_kinds(uint64_t seed) {
  tests::Dice dice(seed);
  ir::PlanGraph graph = tests::random_dag(seed, 12, 3, Samples(8));
  graph.optimizer_state_per_weight_byte = static_cast<double>(seed % 3);
  for (ir::WeightGroup& group : graph.weight_groups) group.trainable = dice.below(4) > 0;
  for (ir::PlanNode& node : graph.nodes) {
    node.buffer_bytes = Bytes(static_cast<int64_t>(dice.below(5)));
    if (dice.below(4) == 0 && !graph.weight_groups.empty())
      node.weights.push_back(ir::WeightGroupId(dice.below(graph.weight_groups.size())));
  }
  return graph;
}

/// Runs of the topological order on one device each, or on two that may divide the optimizer's state.
ir::Assignment runs_of_nodes(uint64_t seed, size_t nodes) {
  tests::Dice dice(seed);
  ir::Assignment assignment;
  size_t device = 0;
  for (size_t i = 0; i < nodes; ++i) {
    if (i == 0 || dice.below(3) == 0) {
      ir::StageChoice choice{.devices = {ir::DeviceId(device++)}, .micro_batch = Samples(2)};
      if (dice.below(3) == 0) choice.devices.push_back(ir::DeviceId(device++));
      choice.shard_optimizer_state = choice.devices.size() > 1;
      assignment.choice.push_back(choice);
    }
    assignment.stage_of.push_back(StageId(assignment.choice.size() - 1));
  }
  return assignment;
}

}  // namespace

TEST_CASE("no plan holds fewer bytes than the bound, on all devices together and on the one with the largest node") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph = graph_of_all_kinds(seed);
    ir::Assignment assignment = runs_of_nodes(seed, graph.nodes.size());
    const auto stages = build_stage_graph(graph, assignment);
    REQUIRE(stages.ok());
    const ir::Cluster cluster = ir::equal_devices(24);
    const auto peak = cost::peak_memory(*stages, cluster, IdMap<StageId, Samples>(stages->stages.size(), Samples(2)));
    const cost::MemoryBound bound = cost::memory_bound(graph, 24);
    CHECK(std::accumulate(peak.begin(), peak.end(), Bytes(0)) >= bound.all);
    CHECK(*std::ranges::max_element(peak) >= bound.one_node);
  }
}

TEST_CASE("the bound is what one device holds for good where it has all nodes") {
  ir::PlanGraph graph = tests::chain_graph(3, {.seconds = 1, .bytes = 0, .weight_bytes = 100}, Samples(8));
  graph.optimizer_state_per_weight_byte = 2;
  graph.weight_groups[ir::WeightGroupId(1u)].bytes = Bytes(150);
  graph.weight_groups[ir::WeightGroupId(2u)].trainable = false;
  const cost::MemoryBound bound = cost::memory_bound(graph, 1);
  CHECK(bound.all == Bytes(4 * 100 + 4 * 150 + 100));
  CHECK(bound.one_node == Bytes(4 * 150));
  CHECK(bound.node == ir::PlanNodeId(1u));
  CHECK(cost::memory_bound(graph, 3).one_node == Bytes(2 * 150 + 100));
}
