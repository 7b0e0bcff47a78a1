#include <doctest/doctest.h>

#include "cost/lower_bound.h"
#include "scheduler/build_schedule.h"
#include "scheduler/policies/schedule_local_search.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

/// Bytes that the devices' memory would have to be for the schedule, device by device.
std::vector<Bytes> peaks(const StageGraph& graph, const Schedule& compute) {
  std::vector<Bytes> result;
  for (const DeviceMemory& memory : memory_of(graph, *insert_transfers(graph, compute), {}))
    result.push_back(memory.peak);
  return result;
}

}  // namespace

TEST_CASE("the search never makes a schedule worse, keeps it complete, and stays within the memory") {
  int faster = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    StandaloneCase standalone = random_stages(seed);
    const char* names[] = {"kfkb", "gpipe", "zb-1p", "none"};
    const auto compute =
        find_policy(names[seed % 4])->order({.graph = standalone.graph, .cluster = standalone.cluster});
    if (!compute.ok()) continue;
    // The devices have just what the schedule needs.
    const std::vector<Bytes> before = peaks(standalone.graph, *compute);
    for (size_t p = 0; p < before.size(); ++p)
      standalone.cluster.devices[compute->programs[p].device].memory = before[p];
    const Schedule better = improve_order(standalone.graph, standalone.cluster, *compute, {.max_actions = 20000});
    const auto score = score_order(standalone.graph, standalone.cluster, better);
    const auto start = score_order(standalone.graph, standalone.cluster, *compute);
    REQUIRE(score.has_value());
    CHECK(score->makespan <= start->makespan);
    CHECK(score->excess == Bytes(0));
    faster += score->makespan < start->makespan;
    const Status verdict =
        check_schedule(standalone.graph, standalone.cluster, *insert_transfers(standalone.graph, better));
    if (!verdict.ok()) FAIL(verdict.problems().front().message);
  }
  CHECK(faster > 10);
}

TEST_CASE("the search finds what a schedule without pipelining leaves idle") {
  const StageGraph graph = chain_stages({.ranks = 3, .micro_batches = 6});
  const ir::Cluster cluster = standalone_cluster(3);
  const auto compute = order_none({.graph = graph, .cluster = cluster});
  const auto start = score_order(graph, cluster, *compute);
  const auto found = score_order(graph, cluster, improve_order(graph, cluster, *compute));
  CHECK(start->makespan.count == doctest::Approx(6 * 9 * kTicksPerUnit / 3));
  // 1f1b takes 24 units of a third of a million ticks.
  CHECK(found->makespan.count <= doctest::Approx(24 * kTicksPerUnit / 3));
}

TEST_CASE("schedules with updates or overlaps get better or stay, with the versions and pairs that they had") {
  int faster = 0;
  for (const char* name : {"pipedream", "pipedream-rr", "2bw", "parameter-server", "dualpipe", "dualpipev"})
    for (const int ranks : {2, 4})
      for (const double latency : {0.0, 0.75}) {
        CAPTURE(name);
        CAPTURE(ranks);
        StageGraph graph = standalone_for(*find_policy(name), ranks, 10);
        // A slow stage, so that the order leaves gaps.
        graph.stages[StageId(graph.stages.size() - 1)].forward = ir::SampleFunction::polynomial(2.5, 0);
        const ir::Cluster cluster = standalone_cluster(ranks, latency);
        const auto compute = find_policy(name)->order({.graph = graph, .cluster = cluster});
        REQUIRE(compute.ok());
        const Schedule better = improve_order(graph, cluster, *compute, {.max_actions = 20000});
        const auto score = score_order(graph, cluster, better), start = score_order(graph, cluster, *compute);
        REQUIRE(score.has_value());
        CHECK(*score <= *start);
        faster += score->makespan < start->makespan;
        const Status verdict = check_schedule(graph, cluster, *insert_transfers(graph, better));
        if (!verdict.ok()) FAIL(verdict.problems().front().message);
        for (size_t p = 0; p < compute->programs.size(); ++p) {
          // The same actions, each with its version and pair.
          const auto sorted = [](const ir::Program& program) {
            std::vector<std::string> rows;
            for (const Action& action : program.actions) rows.push_back(ir::print_action(action));
            std::sort(rows.begin(), rows.end());
            return rows;
          };
          CHECK(sorted(better.programs[p]) == sorted(compute->programs[p]));
        }
      }
  CHECK(faster > 0);
}

TEST_CASE("auto is at least as fast as every synchronous policy that fits, and takes less memory where it must") {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    StandaloneCase standalone = random_stages(seed, {.max_stages = 5});
    const PolicyRequest request{.graph = standalone.graph, .cluster = standalone.cluster};
    const auto chosen = order_auto(request);
    REQUIRE(chosen.ok());
    const auto score = score_order(standalone.graph, standalone.cluster, *chosen);
    REQUIRE(score.has_value());
    for (const Policy& policy : all_policies()) {
      if (policy.asynchronous || policy.forward_only) continue;
      const auto other = policy.order(request);
      if (!other.ok()) continue;
      const auto other_score = score_order(standalone.graph, standalone.cluster, *other);
      if (other_score) CHECK(score->makespan <= other_score->makespan);
    }
  }
  StageGraph graph = chain_stages({.ranks = 4, .micro_batches = 8});
  for (ir::Stage& stage : graph.stages) stage.stash_to_input_gradient = ir::SampleFunction::polynomial(0, 1000);
  ir::Cluster cluster = standalone_cluster(4);
  for (ir::Device& device : cluster.devices) device.memory = Bytes(2500);
  const auto small = order_auto({.graph = graph, .cluster = cluster});
  REQUIRE(small.ok());
  CHECK(score_order(graph, cluster, *small)->excess == Bytes(0));
  CHECK(build_schedule(graph, cluster, {.policy = "auto"}).ok());
}

TEST_CASE("auto is no slower than the policies that it tries where updates wait for a norm of all gradients") {
  // The long update of the last stage waits for the gradients of the first, which a split backward sends sooner.
  StageGraph graph = chain_stages({.ranks = 2, .micro_batches = 1});
  for (ir::Stage& stage : graph.stages) stage.trainable_weight_bytes = stage.weight_bytes = Bytes(1);
  graph.stages[StageId(1u)].update_traffic = 8;
  ir::Cluster cluster = standalone_cluster(2);
  for (ir::Device& device : cluster.devices) device.memory_bandwidth = BytesPerSecond(1);
  const auto units_of = [&](const std::string& policy) {
    const auto built = build_schedule(graph, cluster, {.policy = policy, .lowering = {.norm = true}});
    REQUIRE(built.ok());
    return built->seconds();
  };
  CHECK(units_of("kfkb") == doctest::Approx(6 + 8));
  CHECK(units_of("zb-1p") == doctest::Approx(5 + 8));
  CHECK(units_of("auto") == doctest::Approx(5 + 8));
}
