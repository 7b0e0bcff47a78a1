// The end of a synchronous step: reductions begin as soon as their gradients are complete, in one order everywhere, and
// that never makes a step longer.

#include "scheduler/lowering/finish_step.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>

#include "scheduler/validate/check_schedule.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

bool reduces(const Action& action) { return action.op == ActionOp::kReduceGradient; }
bool computes(const Action& action) { return ir::is_compute(action.op); }

/// The same schedule with its reductions behind all compute actions, ascending by group.
Schedule with_late_reductions(const StageGraph& graph, Schedule schedule) {
  const IdMap<StageId, int> groups = reduction_groups(graph);
  for (ir::Program& program : schedule.programs) {
    std::vector<Action>& actions = program.actions;
    std::vector<Action> late;
    std::ranges::copy_if(actions, std::back_inserter(late), reduces);
    std::ranges::stable_sort(late, {}, [&](const Action& a) { return groups[StageId(static_cast<size_t>(a.stage))]; });
    std::erase_if(actions, reduces);
    const auto end = std::ranges::find_if(
        actions, [](const Action& a) { return a.op == ActionOp::kNorm || a.op == ActionOp::kStep; });
    actions.insert(end, late.begin(), late.end());
  }
  return schedule;
}

Ticks length_of(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& schedule) {
  const Status verdict = check_schedule(graph, cluster, schedule);
  if (!verdict.ok()) FAIL(verdict.problems().front().message);
  const auto timeline = simulate(graph, cluster, schedule);
  REQUIRE(timeline.ok());
  return timeline->makespan;
}

/// Reductions with a compute action somewhere behind them on their device.
size_t early_reductions(const ir::Program& program) {
  const auto last = std::find_if(program.actions.rbegin(), program.actions.rend(), computes);
  return static_cast<size_t>(std::count_if(last, program.actions.rend(), reduces));
}

}  // namespace

TEST_CASE("law: a reduction that begins early never makes a step longer") {
  size_t early = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const StandaloneCase random = random_stages(seed, {.frozen = seed % 2 == 0});
    for (const char* name : {"kfkb", "gpipe"}) {
      const Policy* policy = find_policy(name);
      const auto compute = policy->order({.graph = random.graph, .cluster = random.cluster});
      if (!compute.ok()) continue;
      for (const bool norm : {false, true}) {
        const auto schedule = insert_transfers(random.graph, *compute, {.norm = norm});
        REQUIRE(schedule.ok());
        for (const ir::Program& program : schedule->programs) early += early_reductions(program);
        CHECK(length_of(random.graph, random.cluster, *schedule) <=
              length_of(random.graph, random.cluster, with_late_reductions(random.graph, *schedule)));
      }
    }
  }
  CHECK(early > 50);
}

TEST_CASE("each device of a bidirectional pipeline reduces one stage beside the backwards of the other") {
  for (const char* name : {"chimera", "dualpipe"}) {
    CAPTURE(name);
    const Policy* policy = find_policy(name);
    REQUIRE(policy != nullptr);
    StageGraph graph = standalone_for(*policy, 4, 8);
    for (ir::Stage& stage : graph.stages) stage.trainable_weight_bytes = stage.weight_bytes = Bytes(1 << 20);
    const ir::Cluster cluster = standalone_cluster(4, 0.25);
    const Schedule schedule = *insert_transfers(graph, *policy->order({.graph = graph, .cluster = cluster}));
    for (const ir::Program& program : schedule.programs) {
      CHECK(std::ranges::count_if(program.actions, reduces) == 2);
      CHECK(early_reductions(program) == 1);
    }
    CHECK(length_of(graph, cluster, schedule) <= length_of(graph, cluster, with_late_reductions(graph, schedule)));
  }
}

TEST_CASE("a device with one stage reduces at its end, behind its flush") {
  StageGraph graph = chain_stages({.ranks = 2, .micro_batches = 2});
  for (ir::Stage& stage : graph.stages) stage.trainable_weight_bytes = stage.weight_bytes = Bytes(8);
  graph.stages[StageId(1)].choice.devices.push_back(ir::DeviceId(2));
  const ir::Cluster cluster = standalone_cluster(3);
  const Schedule schedule = *insert_transfers(graph, *order_1f1b({.graph = graph, .cluster = cluster}));
  const std::vector<Action>& actions = schedule.programs[1].actions;
  const size_t count = actions.size();
  CHECK(actions[count - 3].op == ActionOp::kFlush);
  CHECK(actions[count - 2].op == ActionOp::kReduceGradient);
  CHECK(actions[count - 1].op == ActionOp::kStep);
}
