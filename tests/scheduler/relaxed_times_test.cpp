#include "scheduler/simulate/relaxed_times.h"

#include <doctest/doctest.h>

#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

std::optional<RelaxedTimes::Score> relaxed(const StageGraph& graph, const ir::Cluster& cluster,
                                           const Schedule& compute) {
  return RelaxedTimes(graph, cluster, compute, fine_ticks_per_second(graph)).score();
}

Ticks simulated(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& compute) {
  const auto timeline =
      simulate(graph, cluster, *insert_transfers(graph, compute), {.ticks_per_second = fine_ticks_per_second(graph)});
  REQUIRE(timeline.ok());
  return timeline->makespan;
}

/// Messages and steps take time, and messages of one link wait for each other.
void take_time(StandaloneCase& standalone) {
  standalone.cluster.levels.back().bandwidth = BytesPerSecond(1);
  for (ir::Device& device : standalone.cluster.devices) device.memory_bandwidth = BytesPerSecond(1000);
  for (ir::StageEdge& edge : standalone.graph.edges) {
    edge.bytes = ir::SampleFunction::polynomial(0, 0.5);
    if (edge.carries_gradient()) edge.gradient_bytes = ir::SampleFunction::polynomial(0, 0.75);
  }
}

}  // namespace

TEST_CASE("relaxed times are never longer than the simulated step, and as long where no message waits for a link") {
  int equal = 0, shorter = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    StandaloneCase standalone = random_stages(seed);
    if (seed % 2 == 0) take_time(standalone);
    for (const char* policy : {"kfkb", "gpipe", "zb-1p", "none"}) {
      CAPTURE(seed);
      CAPTURE(policy);
      const auto compute = find_policy(policy)->order({.graph = standalone.graph, .cluster = standalone.cluster});
      if (!compute.ok()) continue;
      const auto score = relaxed(standalone.graph, standalone.cluster, *compute);
      REQUIRE(score.has_value());
      const Ticks step = simulated(standalone.graph, standalone.cluster, *compute);
      CHECK(score->makespan <= step);
      ++(score->makespan == step ? equal : shorter);
    }
  }
  CHECK(equal > 100);
  CHECK(shorter > 10);
}

TEST_CASE("relaxed times of linear pipelines are the simulated ones, for every synchronous policy") {
  for (const Policy& policy : all_policies()) {
    if (policy.asynchronous || policy.forward_only || policy.shape == StageShape::kReplicas) continue;
    CAPTURE(policy.name);
    const StageGraph graph = standalone_for(policy, 4, 8);
    const ir::Cluster cluster = standalone_cluster(4, 0.75);
    const auto compute = policy.order({.graph = graph, .cluster = cluster});
    REQUIRE(compute.ok());
    CHECK(relaxed(graph, cluster, *compute)->makespan == simulated(graph, cluster, *compute));
  }
}

TEST_CASE("an order whose lists are rotated has the times of the order made so, and none where it waits forever") {
  const StageGraph graph = chain_stages({.ranks = 3, .micro_batches = 4});
  const ir::Cluster cluster = standalone_cluster(3, 0.5);
  Schedule compute = *find_policy("1f1b")->order({.graph = graph, .cluster = cluster});
  RelaxedTimes times(graph, cluster, compute, fine_ticks_per_second(graph));
  const auto before = times.score();
  // F3 of the last stage before B0.
  times.rotate(2, 1, 6, 7);
  auto& list = compute.programs[2].actions;
  REQUIRE(list[6].op == ActionOp::kForward);
  std::rotate(list.begin() + 1, list.begin() + 6, list.begin() + 7);
  CHECK(times.score() == relaxed(graph, cluster, compute));
  CHECK(times.score()->makespan > before->makespan);
  times.rotate(2, 1, 2, 7);
  CHECK(times.score() == before);
  // The first stage's B0 before F0: the last stage never gets F0.
  times.rotate(0, 0, 3, 4);
  CHECK_FALSE(times.score().has_value());
}
