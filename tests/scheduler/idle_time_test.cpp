#include "scheduler/analysis/idle_time.h"

#include <doctest/doctest.h>

#include "scheduler/analysis/schedule_bound.h"
#include "scheduler/standalone/policy_schedule.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

Ticks busy_ticks(const ir::Program& program, const std::vector<Span>& spans) {
  Ticks busy;
  for (size_t i = 0; i < spans.size(); ++i)
    if (ir::is_compute(program.actions[i].op) || program.actions[i].op == ActionOp::kStep)
      busy += spans[i].end - spans[i].start;
  return busy;
}

Ticks by(const IdleTime& idle, IdleCause cause) { return idle[static_cast<size_t>(cause)]; }

}  // namespace

TEST_CASE("idle time has one cause each tick: causes and work add up to the makespan") {
  int compared = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const StandaloneCase standalone = random_stages(seed);
    for (const char* policy : {"kfkb", "gpipe", "1f1b", "zb-1p"}) {
      const auto compute = find_policy(policy)->order({.graph = standalone.graph, .cluster = standalone.cluster});
      if (!compute.ok()) continue;
      const Schedule schedule = *insert_transfers(standalone.graph, *compute);
      const auto timeline =
          simulate(standalone.graph, standalone.cluster, schedule, {.ticks_per_second = kTicksPerUnit});
      REQUIRE(timeline.ok());
      const std::vector<IdleTime> idle = idle_time(standalone.graph, schedule, *timeline);
      REQUIRE(idle.size() == schedule.programs.size());
      for (size_t p = 0; p < idle.size(); ++p) {
        Ticks sum = busy_ticks(schedule.programs[p], timeline->spans[p]);
        for (const Ticks ticks : idle[p]) {
          CHECK(ticks >= Ticks(0));
          sum += ticks;
        }
        CHECK(sum == timeline->makespan);
      }
      ++compared;
    }
  }
  CHECK(compared > 300);
}

TEST_CASE("no schedule beats its bound, whatever the policy, the graph and the latency") {
  int split = 0, whole = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const StandaloneCase standalone = random_stages(seed, {.weights = false});
    for (const char* policy : {"kfkb", "gpipe", "1f1b", "dapple-b", "none", "zb-1p", "zb-2p"}) {
      CAPTURE(policy);
      const auto compute = find_policy(policy)->order({.graph = standalone.graph, .cluster = standalone.cluster});
      if (!compute.ok()) continue;
      const Schedule schedule = *insert_transfers(standalone.graph, *compute);
      const auto timeline =
          simulate(standalone.graph, standalone.cluster, schedule, {.ticks_per_second = kTicksPerUnit});
      REQUIRE(timeline.ok());
      const double bound = schedule_bound(standalone.graph, standalone.cluster, schedule);
      CHECK(bound <= units(timeline->makespan) + 1e-3);
      ++(std::string_view(policy).starts_with("zb") ? split : whole);
    }
  }
  CHECK(split > 100);
  CHECK(whole > 1000);
}

TEST_CASE("chains: 1f1b, the interleaved orders and zero bubble meet or miss their bounds as known") {
  const auto gap = [](const char* name, int chunks, int64_t micro_batches) {
    const Policy& policy = *find_policy(name);
    const StageGraph graph =
        *policy_schedule(policy, {.ranks = 4, .chunks = chunks, .micro_batches = micro_batches, .costs = {}});
    const ir::Cluster cluster = standalone_cluster(4);
    const Schedule schedule = *insert_transfers(graph, *policy.order({.graph = graph, .cluster = cluster}));
    const auto timeline = simulate(graph, cluster, schedule, {.ticks_per_second = kTicksPerUnit});
    return units(timeline->makespan) - schedule_bound(graph, cluster, schedule);
  };
  CHECK(gap("1f1b", 1, 8) == 0);
  CHECK(gap("gpipe", 1, 8) == 0);
  CHECK(gap("zb-1p", 1, 8) == 0);
  CHECK(gap("zb-2p", 1, 8) == 0);
  CHECK(gap("interleaved", 2, 8) == 0);
  CHECK(gap("looped-bfs", 2, 8) == 0);
  CHECK(gap("none", 1, 8) > 0);
}

TEST_CASE("1f1b: the first rank idles for its gradient, the last before and after its work") {
  const StageGraph graph = chain_stages({.ranks = 4, .micro_batches = 8});
  const ir::Cluster cluster = standalone_cluster(4);
  const Schedule schedule = *insert_transfers(graph, *order_1f1b({.graph = graph, .cluster = cluster}));
  const auto timeline = simulate(graph, cluster, schedule, {.ticks_per_second = kTicksPerUnit});
  const std::vector<IdleTime> idle = idle_time(graph, schedule, *timeline);
  // Ranks 0 to 3 stand still for 9 units: (P - 1) (f + b).
  CHECK(units(by(idle[3], IdleCause::kWarmUp)) == 3);
  CHECK(units(by(idle[3], IdleCause::kDrain)) == 6);
  CHECK(units(by(idle[0], IdleCause::kWarmUp)) == 0);
  // A fifth forward could run while the first gradient is under way, if there were memory for it.
  CHECK(units(by(idle[0], IdleCause::kInFlightLimit)) == 6);
  CHECK(units(by(idle[0], IdleCause::kGradient)) == 3);
}

TEST_CASE("latency shows as time on the link") {
  const StageGraph graph = chain_stages({.ranks = 2, .micro_batches = 1});
  const ir::Cluster cluster = standalone_cluster(2, 0.5);
  const Schedule schedule = *insert_transfers(graph, *order_1f1b({.graph = graph, .cluster = cluster}));
  const auto timeline = simulate(graph, cluster, schedule, {.ticks_per_second = kTicksPerUnit});
  const std::vector<IdleTime> idle = idle_time(graph, schedule, *timeline);
  CHECK(units(by(idle[0], IdleCause::kLink)) == 0.5);
  CHECK(units(by(idle[0], IdleCause::kGradient)) == 3.5);
  CHECK(units(by(idle[1], IdleCause::kWarmUp)) == 1.5);
  CHECK(units(by(idle[1], IdleCause::kDrain)) == 2.5);
}
