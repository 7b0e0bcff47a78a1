#include "scheduler/analysis/start_slack.h"

#include <doctest/doctest.h>

#include "scheduler/build_schedule.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

Schedule lowered(const StageGraph& graph, const ir::Cluster& cluster, const char* policy) {
  const auto compute = find_policy(policy)->order({.graph = graph, .cluster = cluster});
  REQUIRE(compute.ok());
  return *insert_transfers(graph, *compute, {.finish_step = false});
}

/// A random series-parallel graph: appends one of `count` stages behind `before` and returns its last ones.
std::vector<StageId> add_stages(std::vector<StandaloneStage>& stages, int count, std::vector<StageId> before,
                                std::mt19937_64& random) {
  if (count == 1) {
    StandaloneStage stage;
    stage.predecessors = std::move(before);
    stage.forward = stage.input_gradient = stage.weight_gradient = ir::SampleFunction::polynomial(1, 0);
    stage.choice.devices = {ir::DeviceId(stages.size())};
    stages.push_back(std::move(stage));
    return {StageId(stages.size() - 1)};
  }
  const int first = 1 + static_cast<int>(random() % static_cast<uint64_t>(count - 1));
  const bool series = random() % 2 == 0;
  std::vector<StageId> ends = add_stages(stages, first, before, random);
  if (series) return add_stages(stages, count - first, std::move(ends), random);
  const std::vector<StageId> others = add_stages(stages, count - first, std::move(before), random);
  ends.insert(ends.end(), others.begin(), others.end());
  return ends;
}

}  // namespace

TEST_CASE("zb-2p starts short branches late, so that no device of a series-parallel graph has a bubble in its span") {
  constexpr int kGraphs = 1000;
  int tight_without = 0, carry_starts = 0;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::vector<StandaloneStage> stages;
    const int count = 4 + static_cast<int>(random() % 9);
    add_stages(stages, count, {}, random);
    const int64_t micro_batches = 3 * count + 2;
    const StageGraph graph = standalone_graph(stages, Samples(micro_batches));
    const ir::Cluster cluster = standalone_cluster(count);
    const auto built =
        build_schedule(graph, cluster, {.policy = "zb-2p", .simulation = {.ticks_per_second = kTicksPerUnit}});
    REQUIRE(built.ok());
    const double work = 3 * static_cast<double>(micro_batches);
    CHECK(units(metrics_of(built->schedule, built->timeline).longest_span) == work);
    Schedule early = built->schedule;
    early.starts.clear();
    const auto timeline = simulate(graph, cluster, early, {.ticks_per_second = kTicksPerUnit});
    REQUIRE(timeline.ok());
    CHECK(built->timeline.makespan == timeline->makespan);
    tight_without += units(metrics_of(early, *timeline).longest_span) == work;
    carry_starts += !built->schedule.starts.empty();
  }
  MESSAGE(tight_without << " of " << kGraphs << " without late starts, all with them");
  CHECK(tight_without + carry_starts == kGraphs);
  CHECK(tight_without > 0);
  CHECK(carry_starts > kGraphs / 10);
}

TEST_CASE("starts that no program has, or that no clock shows, are refused") {
  const StageGraph graph = chain_stages({.ranks = 2, .micro_batches = 2});
  const ir::Cluster cluster = standalone_cluster(2);
  Schedule schedule = lowered(graph, cluster, "1f1b");
  schedule.starts = {Ticks(0), Ticks(5)};
  CHECK(check_schedule(graph, cluster, schedule).ok());
  CHECK(simulate(graph, cluster, schedule).ok());
  for (const std::vector<Ticks>& starts :
       {std::vector{Ticks(0)}, {Ticks(0), Ticks(-1)}, {Ticks(0), Ticks(INT64_MAX)}}) {
    schedule.starts = starts;
    CHECK_FALSE(check_schedule(graph, cluster, schedule).ok());
    CHECK_FALSE(simulate(graph, cluster, schedule).ok());
  }
}

TEST_CASE("a latest start is no earlier than the start, and leaves room for the work of the device") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const StandaloneCase standalone = random_stages(seed);
    const Schedule schedule = lowered(standalone.graph, standalone.cluster, seed % 2 == 0 ? "kfkb" : "gpipe");
    const auto timeline = simulate(standalone.graph, standalone.cluster, schedule, {.ticks_per_second = kTicksPerUnit});
    REQUIRE(timeline.ok());
    const std::vector<Ticks> starts = latest_starts(standalone.graph, schedule, *timeline);
    const TimelineMetrics metrics = metrics_of(schedule, *timeline);
    for (size_t p = 0; p < starts.size(); ++p) {
      CHECK(starts[p] >= metrics.devices[p].first_start);
      CHECK(metrics.devices[p].last_end - starts[p] >= metrics.devices[p].busy);
    }
  }
}
