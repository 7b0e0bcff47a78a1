// What is claimed of weight versions is proven: it holds for the policies that promise it, and one action that breaks
// it is found and named.

#include "scheduler/validate/version_claims.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "scheduler/build_schedule.h"
#include "tests/scheduler/helpers.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

struct Made {
  StageGraph graph;
  ir::Cluster cluster;
  Schedule schedule;
};

Made made(const char* policy, int ranks, int64_t micro_batches, bool vertical_sync = false) {
  StageGraph graph = standalone_for(*find_policy(policy), ranks, micro_batches);
  for (ir::Stage& stage : graph.stages) stage.trainable_weight_bytes = stage.weight_bytes = Bytes(1);
  ir::Cluster cluster = standalone_cluster(ranks);
  Result<BuiltSchedule> built =
      build_schedule(graph, cluster, {.policy = policy, .choices = {.vertical_sync = vertical_sync}, .in_flight = {}});
  REQUIRE(built.ok());
  return {std::move(graph), std::move(cluster), std::move(built->schedule)};
}

std::optional<ScheduleProblem> problem_of(const Made& made, const Schedule& schedule, const VersionClaims& claims) {
  return first_problem(made.graph, made.cluster, schedule, {.memory = {}, .claims = claims});
}

bool is_of(const Action& action, const Action& item) {
  return action.stage == item.stage && action.replica == item.replica;
}

/// Frees each version that a step leaves behind after its last use, and no other.
void free_anew(ir::Program& program, const Action& item) {
  std::erase_if(program.actions, [&](const Action& a) { return a.op == ActionOp::kFreeVersion && is_of(a, item); });
  const std::vector<bool> copies = ir::copying_steps(program);
  std::vector<Action> steps;
  for (size_t i = 0; i < program.actions.size(); ++i)
    if (copies[i] && is_of(program.actions[i], item)) steps.push_back(program.actions[i]);
  for (Action row : steps) {
    row.op = ActionOp::kFreeVersion;
    --row.version;
    const auto last = std::find_if(program.actions.rbegin(), program.actions.rend(), [&](const Action& a) {
      return ir::is_compute(a.op) && is_of(a, item) && a.version == row.version;
    });
    program.actions.insert(last.base(), row);
  }
}

/// All actions of an item read another version, which lives as long as it must.
Schedule with_version(Schedule schedule, const Action& item, int32_t version) {
  for (ir::Program& program : schedule.programs) {
    bool has_item = false;
    for (Action& action : program.actions)
      if (ir::is_compute(action.op) && is_of(action, item) && action.range == item.range) {
        action.version = version;
        has_item = true;
      }
    if (has_item) free_anew(program, item);
  }
  return schedule;
}

constexpr VersionClaims kVerticalSync = {.vertical_sync = true};
constexpr VersionClaims k2bw = {.delayed_updates = true, .max_versions = 2};

}  // namespace

TEST_CASE("policies keep what they promise, and what they do not promise is refused") {
  for (const int ranks : {2, 3, 5}) {
    CAPTURE(ranks);
    const int64_t count = 4 * ranks;
    const Made flushed = made("1f1b", ranks, count), stashed = made("pipedream", ranks, count),
               synced = made("pipedream", ranks, count, true), delayed = made("2bw", ranks, count);
    CHECK(!problem_of(flushed, flushed.schedule, {.synchronous = true, .vertical_sync = true, .max_versions = 1}));
    CHECK(!problem_of(stashed, stashed.schedule, {.max_versions = ranks}));
    CHECK(!problem_of(synced, synced.schedule, {.vertical_sync = true, .max_versions = ranks}));
    CHECK(!problem_of(delayed, delayed.schedule, {.vertical_sync = true, .delayed_updates = true, .max_versions = 2}));
    CHECK(problem_of(stashed, stashed.schedule, {.synchronous = true}));
    CHECK(problem_of(stashed, stashed.schedule, kVerticalSync));
    CHECK(problem_of(stashed, stashed.schedule, {.max_versions = ranks - 1}));
    // Of two ranks the older one is one update late, which is what 2bw is.
    CHECK(problem_of(synced, synced.schedule, {.delayed_updates = true}).has_value() == (ranks > 2));
    CHECK(problem_of(delayed, delayed.schedule, {.max_versions = 1}));
  }
}

TEST_CASE("one item that reads another version breaks vertical sync and 2bw, and is the action that is named") {
  struct Case {
    Made made;
    VersionClaims claims;
  };
  const Case cases[] = {{made("pipedream", 4, 12, true), kVerticalSync}, {made("2bw", 4, 16), k2bw}};
  for (const Case& each : cases) {
    CAPTURE(each.made.schedule.policy);
    int changed = 0;
    for (size_t p = 0; p < each.made.schedule.programs.size(); ++p) {
      const std::vector<Action>& actions = each.made.schedule.programs[p].actions;
      for (size_t i = 0; i < actions.size(); ++i) {
        if (actions[i].op != ActionOp::kForward) continue;
        for (const int32_t change : {-1, 1}) {
          if (actions[i].version + change < 0) continue;
          const Schedule other = with_version(each.made.schedule, actions[i], actions[i].version + change);
          if (problem_of(each.made, other, {})) continue;  // not even a version that is there
          ++changed;
          const std::optional<ScheduleProblem> problem = problem_of(each.made, other, each.claims);
          REQUIRE(problem);
          REQUIRE(problem->program == static_cast<int>(p));
          const Action& named = other.programs[p].actions[static_cast<size_t>(problem->position)];
          CHECK(named.stage == actions[i].stage);
          CHECK(named.range == actions[i].range);
          CHECK(named.op == ActionOp::kForward);
        }
      }
    }
    CHECK(changed > 0);
  }
}

TEST_CASE("an update that is cut short is no synchronous step and no update of 2bw") {
  const Made delayed = made("2bw", 2, 8);
  const std::optional<ScheduleProblem> problem = problem_of(delayed, delayed.schedule, {.synchronous = true});
  REQUIRE(problem);
  const Action& named =
      delayed.schedule.programs[static_cast<size_t>(problem->program)].actions[static_cast<size_t>(problem->position)];
  CHECK(named.op == ActionOp::kStep);
  CHECK(problem->what == "applies only a part of a synchronous step's samples");
}
