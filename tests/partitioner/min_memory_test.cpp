// A model that no plan fits is refused without a search, and nothing else is.

#include "partitioner/min_memory.h"

#include <doctest/doctest.h>

#include "partitioner/planner.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;

TEST_CASE("what is refused without a search has no plan, and what has a plan is not refused") {
  int refused = 0, planned = 0;
  for (uint64_t seed = 0; seed < 40; ++seed)
    for (const int64_t memory : {10, 30, 60, 200}) {
      CAPTURE(seed);
      CAPTURE(memory);
      ir::PlanGraph graph = tests::random_dag(seed, 5, 2, Samples(2));
      for (ir::WeightGroup& group : graph.weight_groups) group.bytes = Bytes(4 * group.bytes.count);
      ir::Cluster cluster = ir::equal_devices(3);
      for (ir::Device& device : cluster.devices) device.memory = Bytes(memory);
      const bool is_refused = !check_min_memory(graph, cluster, false).ok();
      // Asked past the check of plan().
      const auto answer = ask(*find_planner("exhaustive"), {.graph = &graph, .cluster = &cluster});
      if (is_refused) CHECK(!answer.ok());
      refused += is_refused ? 1 : 0;
      planned += answer.ok() ? 1 : 0;
    }
  CHECK(refused > 10);
  CHECK(planned > 10);
}

TEST_CASE("the refusal says what takes the memory, how much there is, and how many devices would do") {
  const ir::PlanGraph graph = tests::chain_graph(4, {.seconds = 1, .bytes = 0, .weight_bytes = 100}, Samples(8));
  ir::Cluster cluster = ir::equal_devices(2);
  for (ir::Device& device : cluster.devices) device.memory = Bytes(399);
  const auto together = plan("auto", {.graph = &graph, .cluster = &cluster});
  REQUIRE(!together.ok());
  CHECK(together.problems().front().code == Code::kNoFeasiblePlan);
  CHECK(to_line(together.problems().front())
            .find("all weights take 800 bytes with gradients, the 2 devices have 798 "
                  "bytes; use at least 3 such devices") != std::string::npos);
  for (ir::Device& device : cluster.devices) device.memory = Bytes(199);
  const auto one = plan("auto", {.graph = &graph, .cluster = &cluster});
  REQUIRE(!one.ok());
  CHECK(one.problems().front().origin.raw() == "node0");
  CHECK(to_line(one.problems().front())
            .find("the weights of this node take 200 bytes with gradients, the largest "
                  "device has 199 bytes") != std::string::npos);
}
