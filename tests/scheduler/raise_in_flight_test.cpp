#include "scheduler/policies/raise_in_flight.h"

#include <doctest/doctest.h>

#include "scheduler/policies/in_flight_rules.h"
#include "scheduler/policies/list_rule.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"

using namespace graphpipe;
using namespace graphpipe::tests;

namespace {

Schedule alternate(const StageGraph& graph, const IdMap<StageId, Samples>& numbers) {
  return *order_kfkb({.graph = graph, .cluster = standalone_cluster(64), .in_flight = numbers});
}

StandaloneCase unit_dag(uint64_t seed) {
  StandaloneCase standalone = random_stages(seed, {.max_stages = 9,
                                                   .replicas = false,
                                                   .shared_devices = false,
                                                   .frozen = false,
                                                   .recompute = false,
                                                   .weights = false});
  standalone.graph.batch = Samples(64);
  for (ir::Stage& stage : standalone.graph.stages) {
    stage.choice.micro_batch = Samples(1);
    stage.choice.k = 1;
    stage.forward = ir::SampleFunction::polynomial(0, 1);
    stage.input_gradient = ir::SampleFunction::polynomial(0, 2);
    stage.weight_gradient = {};
  }
  return standalone;
}

}  // namespace

TEST_CASE("with equal costs the simulator confirms the period of the rule on every stage graph") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const StandaloneCase standalone = unit_dag(seed);
    const PolicyRequest request{.graph = standalone.graph, .cluster = standalone.cluster};
    CHECK(steady_period(request, in_flight_of(request), alternate) == doctest::Approx(3).epsilon(1e-3));
  }
}

TEST_CASE("raised numbers are never slower, and cure most stage graphs that the static numbers starve") {
  int starved = 0, cured = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    StandaloneCase standalone =
        random_stages(seed, {.max_stages = 6, .frozen = false, .recompute = false, .weights = false});
    standalone.graph.batch = Samples(96);
    for (ir::Stage& stage : standalone.graph.stages)
      if (stage.choice.micro_batch == Samples(3)) stage.choice.micro_batch = Samples(4);
    const PolicyRequest request{.graph = standalone.graph, .cluster = standalone.cluster};
    const auto numbers = in_flight_of(request);
    const double period = attainable_period(request), before = steady_period(request, numbers, alternate);
    if (before <= period * (1 + 1e-3)) continue;
    ++starved;
    const auto raised = raise_where_starved(request, numbers, period, alternate);
    const double after = steady_period(request, raised, alternate);
    CHECK(after <= before * (1 + 1e-9));
    cured += after <= period * (1 + 1e-3);
  }
  MESSAGE(starved << " of 120 graphs starve with the static numbers, " << cured << " of them are cured");
  CHECK(starved > 0);
}

TEST_CASE("numbers that starve by hand are raised to the full rate") {
  const StageGraph graph = chain_stages({.ranks = 4, .micro_batches = 32});
  const ir::Cluster cluster = standalone_cluster(4);
  const PolicyRequest request{.graph = graph, .cluster = cluster};
  const IdMap<StageId, Samples> ones(4, Samples(1));
  CHECK(steady_period(request, ones, alternate) > 3.5);
  const auto raised = raise_where_starved(request, ones, 3, alternate);
  CHECK(steady_period(request, raised, alternate) == doctest::Approx(3).epsilon(1e-3));
  CHECK(raised == depth_numbers(graph));
}

TEST_CASE("long updates of weights do not hide that numbers starve") {
  StageGraph graph = chain_stages({.ranks = 4, .micro_batches = 32});
  ir::Cluster cluster = standalone_cluster(4);
  for (ir::Device& device : cluster.devices) device.memory_bandwidth = BytesPerSecond(1);
  for (ir::Stage& stage : graph.stages) {
    stage.weight_bytes = stage.trainable_weight_bytes = stage.updated_weight_bytes = Bytes(1);
    stage.update_traffic = 100;
  }
  const PolicyRequest request{.graph = graph, .cluster = cluster};
  CHECK(raise_where_starved(request, IdMap<StageId, Samples>(4, Samples(1)), 3, alternate) == depth_numbers(graph));
}

TEST_CASE("numbers that are enough stay as they are") {
  const StageGraph graph = chain_stages({.ranks = 4, .micro_batches = 32});
  const ir::Cluster cluster = standalone_cluster(4);
  const PolicyRequest request{.graph = graph, .cluster = cluster};
  CHECK(raise_where_starved(request, depth_numbers(graph), 3, alternate) == depth_numbers(graph));
}

TEST_CASE("no number is raised when the time is over, and those raised before it is stay") {
  int ended = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    StandaloneCase standalone =
        random_stages(seed, {.max_stages = 6, .frozen = false, .recompute = false, .weights = false});
    standalone.graph.batch = Samples(96);
    for (ir::Stage& stage : standalone.graph.stages)
      if (stage.choice.micro_batch == Samples(3)) stage.choice.micro_batch = Samples(4);
    PolicyRequest request{.graph = standalone.graph, .cluster = standalone.cluster};
    const auto numbers = in_flight_of(request);
    const double period = attainable_period(request);
    int asked = 0, late = 0;
    bool is_over = false;
    const OrderByNumbers order = [&](const StageGraph& graph, const IdMap<StageId, Samples>& wanted) {
      late += is_over;
      return alternate(graph, wanted);
    };
    const auto raised_for = [&](int times) {
      asked = 0;
      is_over = false;
      request.is_over = [&, times] { return is_over = ++asked > times; };
      return raise_where_starved(request, numbers, period, order);
    };
    CHECK(raised_for(0) == numbers);
    const auto whole = raised_for(1000);
    const auto half = raised_for(asked / 2);
    CHECK(late == 0);
    ended += half != whole;
    for (const StageId stage : standalone.graph.stage_ids()) CHECK(half[stage] >= numbers[stage]);
  }
  CHECK(ended > 0);
}
