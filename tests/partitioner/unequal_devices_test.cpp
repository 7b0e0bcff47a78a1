#include <doctest/doctest.h>

#include <algorithm>
#include <optional>

#include "cost/lower_bound.h"
#include "partitioner/baselines/shaped_split.h"
#include "partitioner/heterogeneous/chain_dp.h"
#include "partitioner/heterogeneous/device_order.h"
#include "partitioner/several_searches.h"
#include "tests/support/case_count.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;
using ir::DeviceId;
using ir::PlanNodeId;
using ir::StageId;

namespace {

ir::SampleFunction scaled(const ir::SampleFunction& f, double by) {
  return ir::SampleFunction::polynomial(f.constant() * by, f.linear() * by, f.quadratic() * by);
}

/// Device d takes factors[d] times as long as the graph says; the graph's own prices become those of the slowest.
ir::PlanGraph on_devices(ir::PlanGraph graph, const std::vector<double>& factors) {
  std::vector<double> kinds;
  for (const double factor : factors) {
    const auto known = std::find(kinds.begin(), kinds.end(), factor);
    graph.kind_of_device.push_back(static_cast<int>(known - kinds.begin()));
    if (known == kinds.end()) kinds.push_back(factor);
  }
  const double slowest = *std::max_element(kinds.begin(), kinds.end());
  for (ir::PlanNode& node : graph.nodes) {
    for (const double kind : kinds)
      node.by_kind.push_back(
          {scaled(node.forward, kind), scaled(node.input_gradient, kind), scaled(node.weight_gradient, kind)});
    node.forward = scaled(node.forward, slowest);
    node.input_gradient = scaled(node.input_gradient, slowest);
    node.weight_gradient = scaled(node.weight_gradient, slowest);
  }
  return graph;
}

ir::Cluster cluster_of(int devices, double bandwidth = 4000) {
  ir::Cluster cluster = ir::equal_devices(devices);
  cluster.levels = {{.group = devices, .latency = Seconds(0.01), .bandwidth = BytesPerSecond(bandwidth)}};
  return cluster;
}

PlanCandidate best_of(std::string_view planner, const PlanRequest& request) {
  auto answer = plan(planner, request);
  if (!answer.ok()) FAIL(to_line(answer.problems().front()));
  CHECK(answer->bound <= answer->objective * (1 + 1e-9));
  return answer->candidates.front();
}

}  // namespace

TEST_CASE("a device of twice the speed gets twice the nodes") {
  const ir::PlanGraph graph = on_devices(tests::chain_graph(6, {.seconds = 1}, Samples(64)), {2, 1});
  REQUIRE(verify_plan_graph(graph).ok());
  const ir::Cluster cluster = cluster_of(2);
  const PlanCandidate best = best_of("auto", {.graph = &graph, .cluster = &cluster, .micro_batch = Samples(1)});
  REQUIRE(best.assignment.choice.size() == 2);
  for (StageId stage : ids<StageId>(2)) {
    const auto nodes = std::count(best.assignment.stage_of.begin(), best.assignment.stage_of.end(), stage);
    const bool is_fast = best.assignment.choice[stage].devices.front() == DeviceId(1u);
    CHECK(nodes == (is_fast ? 4 : 2));
  }
  // Each device works 12 seconds per sample: not even a plan without messages is better.
  CHECK(best.objective == doctest::Approx(12));
  CHECK(cost::plan_bound(graph, cluster).time_per_sample() == doctest::Approx(12));
}

TEST_CASE("with devices of two speeds auto finds about what exhaustive search over all placements finds") {
  int equal = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph = on_devices(
        seed % 2 == 0 ? tests::random_dag(seed, 6, 2, Samples(4)) : tests::random_sp_graph(seed, 6, Samples(4)),
        seed % 3 == 0 ? std::vector<double>{1, 3, 1} : std::vector<double>{2, 1, 2});
    const ir::Cluster cluster = cluster_of(3, 400);
    const PlanRequest request{.graph = &graph, .cluster = &cluster};
    const PlanCandidate best = best_of("auto", request), all = best_of("exhaustive", request);
    CHECK(best.step_seconds <= 1.06 * all.step_seconds);
    equal += best.step_seconds <= all.step_seconds * (1 + 1e-9);
  }
  CHECK(equal >= 9);
}

TEST_CASE("where links are equal, the order in which devices of several speeds are listed changes no plan's step") {
  for (uint64_t seed = 0; seed < tests::case_count(1, 2); ++seed)
    for (const char* planner : {"auto", "graphpipe", "sequential", "piper", "equal-split"}) {
      CAPTURE(seed);
      CAPTURE(planner);
      const ir::PlanGraph plain = tests::random_sp_graph(seed, 9, Samples(8));
      const ir::Cluster cluster = cluster_of(4, 400);
      std::vector<double> factors = {1, 1, 3, 3};
      std::optional<double> step;
      do {
        const ir::PlanGraph graph = on_devices(plain, factors);
        const double found = best_of(planner, {.graph = &graph, .cluster = &cluster}).step_seconds;
        CHECK(found == doctest::Approx(step.value_or(found)).epsilon(1e-12));
        step = found;
      } while (std::ranges::next_permutation(factors).found);
    }
}

TEST_CASE("beside a host of fast devices a slow one makes no plan slower, and its place in the list changes nothing") {
  ir::Cluster both = cluster_of(4);
  both.levels = {{.group = 2, .latency = Seconds(0.001), .bandwidth = BytesPerSecond(40000)},
                 {.group = 4, .latency = Seconds(0.1), .bandwidth = BytesPerSecond(100)}};
  const ir::Cluster fast = ir::first_devices(both, 2);
  REQUIRE(fast.levels.size() == 1);
  for (uint64_t seed = 0; seed < tests::case_count(1, 3); ++seed)
    for (const char* planner : {"auto", "graphpipe", "sequential"}) {
      CAPTURE(seed);
      CAPTURE(planner);
      const ir::PlanGraph plain = tests::random_sp_graph(seed, 9, Samples(8));
      const double alone = best_of(planner, {.graph = &plain, .cluster = &fast}).step_seconds;
      std::optional<double> step;
      for (const std::vector<double>& factors : {std::vector<double>{3, 3, 1, 1}, {1, 1, 3, 3}}) {
        const ir::PlanGraph graph = on_devices(plain, factors);
        const double found = best_of(planner, {.graph = &graph, .cluster = &both}).step_seconds;
        CHECK(found <= alone * (1 + 1e-9));
        CHECK(found == doctest::Approx(step.value_or(found)).epsilon(1e-12));
        step = found;
      }
    }
}

TEST_CASE("with devices of two speeds auto is never behind a planner that it asks") {
  for (uint64_t seed = 1; seed <= tests::case_count(2, 6); ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph =
        on_devices(tests::random_sp_graph(seed, 9, Samples(16)),
                   seed % 2 == 0 ? std::vector<double>{1, 1, 2, 2} : std::vector<double>{3, 1, 3, 1, 1, 3});
    const ir::Cluster cluster = cluster_of(graph.kind_of_device.size() > 4 ? 6 : 4);
    PlanRequest request;
    request.graph = &graph;
    request.cluster = &cluster;
    const double step = best_of("auto", request).step_seconds;
    for (const PlannerEntry& planner : planners()) {
      if (planner.asked == AskedByAuto::kNever) continue;
      CAPTURE(planner.name);
      const auto answer = plan(planner.name, request);
      if (answer.ok()) CHECK(step <= answer->candidates.front().step_seconds * (1 + 1e-9));
    }
  }
}

TEST_CASE("rows on unequal devices have the smallest bottleneck of any row") {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    std::vector<std::vector<size_t>> line(5);
    for (size_t i = 1; i < line.size(); ++i) line[i] = {i - 1};
    const ir::PlanGraph graph =
        on_devices(tests::plan_graph(line, tests::random_prices(dice, line.size()), Samples(4)), {2, 1, 3});
    const ir::Cluster cluster = cluster_of(3, 400);
    const PlanRequest request{.graph = &graph, .cluster = &cluster};
    Deadline deadline(1e9, nullptr);
    Candidates rows(request);
    search_unequal_devices(request, deadline, rows);
    const auto all = plan("exhaustive", request);
    REQUIRE(all.ok());
    CHECK(rows.min_objective() == doctest::Approx(all->objective).epsilon(1e-9));
  }
}

TEST_CASE("policies with several stages on a device have plans on devices of two speeds") {
  const ir::PlanGraph graph = on_devices(tests::chain_graph(8, {.seconds = 1}, Samples(16)), {1, 1, 2, 2});
  const ir::Cluster cluster = cluster_of(4);
  PlanRequest request{.graph = &graph, .cluster = &cluster};
  // The work of the busiest device stands for the step: no order is needed.
  request.evaluate = [&](const ir::Assignment& plan) {
    ir::Assignment numbered = plan;
    return cost::step_bound(build_stage_graph(graph, numbered).value(), cluster).device_work;
  };
  for (const ir::StageShape shape : {ir::StageShape::kLoop, ir::StageShape::kV}) {
    const auto answer = plan_in_shape(request, shape);
    REQUIRE(answer.ok());
    for (const PlanCandidate& candidate : answer->candidates) {
      CHECK(candidate.assignment.choice.size() == 8);
      for (const ir::StageChoice& choice : candidate.assignment.choice) {
        REQUIRE(choice.devices.size() == 1);
        CHECK(choice.devices.front().index() < 4);
      }
    }
  }
}

TEST_CASE("replicas of one stage leave out the slow devices, whatever their numbers") {
  // Summing gradients takes longer than the other devices save.
  const ir::PlanGraph graph =
      on_devices(tests::chain_graph(4, {.seconds = 1, .weight_bytes = 1'000'000}, Samples(8)), {4, 1, 4, 2});
  const ir::Cluster cluster = cluster_of(4);
  const Stopwatch watch;
  const auto answer = plan_for_shape({.graph = &graph, .cluster = &cluster}, ir::StageShape::kReplicas, watch);
  REQUIRE(answer.ok());
  const auto& stages = answer->candidates.front().assignment.choice;
  REQUIRE(stages.size() == 1);
  CHECK(stages[StageId(0u)].devices == std::vector{DeviceId(1u)});
}

TEST_CASE("a stage that only one device can hold goes there") {
  ir::PlanGraph graph = tests::chain_graph(8, {.seconds = 1, .bytes = 1, .weight_bytes = 100}, Samples(8));
  graph.weight_groups[ir::WeightGroupId(3u)].bytes = Bytes(5000);
  ir::Cluster cluster = cluster_of(4);
  for (ir::Device& device : cluster.devices) device.memory = Bytes(1000);
  cluster.devices[DeviceId(2u)].memory = Bytes(20000);
  for (const std::string_view planner : {"sequential", "graphpipe", "auto"}) {
    CAPTURE(planner);
    const PlanCandidate best = best_of(planner, {.graph = &graph, .cluster = &cluster});
    const StageId heavy = best.assignment.stage_of[PlanNodeId(3u)];
    CHECK(best.assignment.choice[heavy].devices == std::vector{DeviceId(2u)});
    CHECK(best.assignment.choice.size() > 1);
  }
}

TEST_CASE("the heaviest cut goes over the fastest link") {
  // Stages 0 and 2 exchange most, and so do 1 and 3; pairs of devices have fast links.
  ir::PlanGraph graph = tests::plan_graph({{}, {}, {0}, {1}, {2, 3}},
                                          {{.seconds = 1, .bytes = 1000},
                                           {.seconds = 1, .bytes = 1000},
                                           {.seconds = 1, .bytes = 1},
                                           {.seconds = 1, .bytes = 1},
                                           {.seconds = 0.01, .bytes = 1}},
                                          Samples(16));
  ir::Assignment chosen;
  for (const size_t stage : {0u, 1u, 2u, 3u, 3u}) chosen.stage_of.push_back(StageId(stage));
  for (size_t device = 0; device < 4; ++device)
    chosen.choice.push_back({.devices = {DeviceId(device)}, .micro_batch = Samples(1)});
  const auto stages = build_stage_graph(graph, chosen);
  REQUIRE(stages.ok());
  ir::Cluster cluster = cluster_of(4);
  cluster.levels = {{.group = 2, .latency = Seconds(0), .bandwidth = BytesPerSecond(1e6)},
                    {.group = 4, .latency = Seconds(0), .bandwidth = BytesPerSecond(1e3)}};
  const std::vector<ir::Assignment> others = other_placements(graph, cluster, *stages, chosen);
  REQUIRE(others.size() == 1);
  const auto device = [&](size_t stage) { return others.front().choice[StageId(stage)].devices.front(); };
  CHECK(device(0).index() / 2 == device(2).index() / 2);
  CHECK(device(1).index() / 2 == device(3).index() / 2);
}

TEST_CASE("replicas divide the optimizer's state if they are to, and fit where whole states do not") {
  ir::PlanGraph graph = tests::chain_graph(2, {.seconds = 1, .bytes = 1, .weight_bytes = 100}, Samples(8));
  graph.optimizer_state_per_weight_byte = 4;
  ir::Cluster cluster = cluster_of(2, 1e6);
  // Both nodes on both devices: 200 of weights, 200 of gradients and as many of the other replica's, 800 of state.
  for (ir::Device& device : cluster.devices) device.memory = Bytes(1100);
  PlanRequest request{.graph = &graph, .cluster = &cluster};
  CHECK_FALSE(plan("data-parallel", request).ok());
  request.shard_optimizer_state = true;
  for (const std::string_view planner : {"data-parallel", "auto"}) {
    CAPTURE(planner);
    const auto answer = plan(planner, request);
    REQUIRE(answer.ok());
    if (planner == "data-parallel")
      CHECK(answer->candidates.front().assignment.choice[StageId(0u)].shard_optimizer_state);
  }
  for (ir::Device& device : cluster.devices) device.memory = Bytes(5000);
  CHECK(best_of("data-parallel", request).assignment.choice[StageId(0u)].shard_optimizer_state);
  graph.optimizer_state_per_weight_byte = 0;  // there is nothing to divide
  CHECK_FALSE(best_of("data-parallel", request).assignment.choice[StageId(0u)].shard_optimizer_state);
}
