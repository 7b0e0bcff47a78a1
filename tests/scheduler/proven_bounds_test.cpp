// The cases in which schedules provably meet their bounds, over random stage graphs (docs/schedules.md, sections 4 to
// 7).

#include <doctest/doctest.h>

#include <random>

#include "cost/cycle_period.h"
#include "cost/in_flight.h"
#include "cost/lower_bound.h"
#include "scheduler/policies/in_flight_rules.h"
#include "tests/scheduler/helpers.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

/// Any stage graph of two to nine stages, one device each; costs equal or at random.
StageGraph random_dag(uint64_t seed, int64_t micro_batches, bool equal_costs) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  std::vector<StandaloneStage> stages(2 + below(8));
  for (size_t s = 0; s < stages.size(); ++s) {
    for (size_t p = 0; p < s; ++p)
      if (below(s) < 2) stages[s].predecessors.push_back(StageId(p));
    const auto cost = [&] {
      return ir::SampleFunction::polynomial(equal_costs ? 1 : 0.25 * static_cast<double>(1 + below(6)), 0);
    };
    stages[s].forward = cost();
    stages[s].input_gradient = cost();
    stages[s].weight_gradient = cost();
    stages[s].choice.devices = {ir::DeviceId(s)};
  }
  return standalone_graph(stages, Samples(micro_batches));
}

int64_t longest_path(const StageGraph& graph) {
  int64_t longest = 0;
  for (const Samples n : depth_in_flight(graph, UseK::kNo)) longest = std::max(longest, n.count);
  return longest;
}

double makespan(const StageGraph& graph, const ir::Cluster& cluster, const Result<Schedule>& compute) {
  REQUIRE(compute.ok());
  const auto lowered = insert_transfers(graph, *compute);
  REQUIRE(lowered.ok());
  const auto timeline = simulate(graph, cluster, *lowered, {.ticks_per_second = kTicksPerUnit});
  REQUIRE(timeline.ok());
  return units(timeline->makespan);
}

}  // namespace

TEST_CASE("with equal costs, 1f1b and zb-1p meet their bounds on every stage graph, zb-1p with D items everywhere") {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    CAPTURE(seed);
    StageGraph graph = random_dag(seed, 1, true);
    const int64_t depth = longest_path(graph), micro_batches = 2 * depth + static_cast<int64_t>(seed % 4);
    graph.batch = Samples(micro_batches);
    const ir::Cluster cluster = standalone_cluster(static_cast<int>(graph.stages.size()));
    const PolicyRequest request{.graph = graph, .cluster = cluster};
    const double bound = cost::step_bound(graph, cluster).total();
    const double unsplit = makespan(graph, cluster, order_1f1b(request));
    CHECK(unsplit == doctest::Approx(static_cast<double>(3 * (micro_batches + depth - 1))));
    const auto zero_bubble = order_zb_1p(request);
    // All work of the deepest stage after the forwards above it.
    const double split = makespan(graph, cluster, zero_bubble);
    CHECK(split == doctest::Approx(static_cast<double>(3 * micro_batches + depth - 1)));
    CHECK(bound <= split + 1e-6);
    for (const int peak : peak_in_flight(*zero_bubble, false)) CHECK(peak == depth);
  }
}

TEST_CASE("the in-flight rule with its cycles sustains the attainable period on every stage graph, whatever latency") {
  for (uint64_t seed = 0; seed < 240; ++seed) {
    CAPTURE(seed);
    const StageGraph graph = random_dag(seed, 64, seed % 3 == 0);
    const double latencies[] = {0, 0.5, 1, 2};
    const ir::Cluster cluster = standalone_cluster(static_cast<int>(graph.stages.size()), latencies[seed % 4]);
    const auto costs = cost::stage_costs(graph, cluster);
    const double period = cost::bottleneck_period(graph, cluster, costs);
    const cost::InFlightPlan numbers = cost::in_flight(graph, cluster);
    REQUIRE(cost::has_cycle_form(graph));
    CHECK(cost::cycle_period(graph, costs, numbers.samples) == doctest::Approx(period));
    // The simulated period: what more micro-batches add once the pipeline is full.
    const auto time = [&](int64_t batch) {
      StageGraph longer = graph;
      longer.batch = Samples(batch);
      return makespan(longer, cluster, order_kfkb({.graph = longer, .cluster = cluster, .in_flight = numbers.samples}));
    };
    CHECK((time(128) - time(64)) / 64 <= period + 1e-6);
  }
}

TEST_CASE("where cycles over several forks and joins are longer than the period, their numbers are raised") {
  int raised = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    const StageGraph graph = random_dag(seed, 64, false);
    const ir::Cluster cluster =
        standalone_cluster(static_cast<int>(graph.stages.size()), 0.25 * static_cast<double>(seed % 9));
    const auto costs = cost::stage_costs(graph, cluster);
    const double period = cost::bottleneck_period(graph, cluster, costs);
    const IdMap<StageId, Samples> rule = cost::in_flight_at(graph, costs, period);
    const IdMap<StageId, Samples> numbers = cost::raise_to_period(graph, costs, period, rule);
    CHECK(cost::cycle_period(graph, costs, numbers) == doctest::Approx(period));
    for (const StageId stage : graph.stage_ids()) CHECK(numbers[stage] >= rule[stage]);
    CHECK((numbers != rule) == (cost::cycle_period(graph, costs, rule) > period * (1 + 1e-6)));
    raised += numbers != rule;
  }
  MESSAGE(raised << " of 3000 stage graphs need more than the rule along single ways");
  CHECK(raised > 0);
}

TEST_CASE("the period that the cycles give is the simulated one, also where numbers are too small") {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    const StageGraph graph = random_dag(seed, 64, false);
    const ir::Cluster cluster = standalone_cluster(static_cast<int>(graph.stages.size()), seed % 2 == 0 ? 0.5 : 0);
    const auto costs = cost::stage_costs(graph, cluster);
    IdMap<StageId, Samples> numbers = depth_in_flight(graph, UseK::kNo);
    for (Samples& n : numbers) n = Samples((n.count + 1) / 2);
    const auto time = [&](int64_t batch) {
      StageGraph longer = graph;
      longer.batch = Samples(batch);
      return makespan(longer, cluster, order_kfkb({.graph = longer, .cluster = cluster, .in_flight = numbers}));
    };
    // A common multiple of the cycles' spans.
    CHECK((time(320) - time(80)) / 240 == doctest::Approx(cost::cycle_period(graph, costs, numbers)).epsilon(2e-3));
  }
}
