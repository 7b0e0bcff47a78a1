// The bound of a plan with heavy updates of weights, against what the simulator makes of every policy.

#include <doctest/doctest.h>

#include "cost/lower_bound.h"
#include "scheduler/build_schedule.h"
#include "scheduler/policies/policies.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::scheduler;

namespace {

/// An update takes a few times what an item does, of each stage another time.
void weigh(StageGraph& graph, ir::Cluster& cluster, uint64_t seed) {
  for (ir::Device& device : cluster.devices) device.memory_bandwidth = BytesPerSecond(100);
  uint64_t stage = seed;
  for (ir::Stage& each : graph.stages) {
    if (!each.has_backward) continue;
    each.weight_bytes = each.trainable_weight_bytes = each.updated_weight_bytes = Bytes(100);
    each.trainable_tensors = 1;
    each.update_traffic = static_cast<double>(100 * (stage++ % 7));
  }
}

void recompute_all(StageGraph& graph) {
  for (ir::Stage& each : graph.stages) each.choice.recompute = each.has_backward;
}

}  // namespace

TEST_CASE("no schedule of any policy beats the bound of its plan, however long updates take") {
  for (const Policy& policy : all_policies()) {
    CAPTURE(policy.name);
    if (policy.forward_only) continue;
    for (uint64_t seed = 0; seed < 7; ++seed) {
      StageGraph graph = tests::standalone_for(policy, 4, 8);
      ir::Cluster cluster = standalone_cluster(4);
      weigh(graph, cluster, seed);
      const auto built = build_schedule(graph, cluster, {.policy = std::string(policy.name)});
      REQUIRE(built.ok());
      CHECK(cost::step_bound(graph, cluster).total() <= built->step_seconds() * (1 + 1e-6));
    }
  }
}

TEST_CASE("nor where all stages recompute, which they may do while they wait for a gradient") {
  int built_plans = 0;
  for (const Policy& policy : all_policies()) {
    CAPTURE(policy.name);
    if (policy.forward_only) continue;
    for (const int micro_batches : {1, 2, 8}) {
      CAPTURE(micro_batches);
      StageGraph graph = tests::standalone_for(policy, 4, micro_batches);
      const ir::Cluster cluster = standalone_cluster(4);
      recompute_all(graph);
      const auto built = build_schedule(graph, cluster, {.policy = std::string(policy.name)});
      if (!built.ok()) continue;  // so few micro-batches are too few for the policy
      ++built_plans;
      CHECK(cost::step_bound(graph, cluster).total() <= built->step_seconds() * (1 + 1e-6));
    }
  }
  CHECK(built_plans > 30);
}

TEST_CASE("nor on stages of any shape") {
  int built_plans = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    tests::StandaloneCase standalone = tests::random_stages(seed);
    weigh(standalone.graph, standalone.cluster, seed);
    if (seed % 3 == 0) recompute_all(standalone.graph);
    for (const std::string policy : {"kfkb", "gpipe", "zb-1p", "pipedream", "2bw"}) {
      CAPTURE(policy);
      const auto built = build_schedule(standalone.graph, standalone.cluster, {.policy = policy});
      if (!built.ok()) continue;
      ++built_plans;
      CHECK(cost::step_bound(standalone.graph, standalone.cluster).total() <= built->step_seconds() * (1 + 1e-6));
    }
  }
  CHECK(built_plans > 300);
}
