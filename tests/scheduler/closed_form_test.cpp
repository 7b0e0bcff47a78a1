// The closed form of a step (cost/iteration_time.h), by which planners rank plans, beside its simulation.

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "cost/iteration_time.h"
#include "scheduler/step_of_plan.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::scheduler;
using ir::DeviceId;
using ir::StageId;

namespace {

/// Runs of nodes in their order as stages, on devices that several may share, with replicas and unlike micro-batches.
ir::Assignment random_assignment(tests::Dice& dice, const ir::PlanGraph& graph, size_t devices) {
  const size_t stages = 1 + dice.below(std::min<size_t>(graph.nodes.size(), 5));
  ir::Assignment assignment;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    assignment.stage_of.push_back(StageId(i * stages / graph.nodes.size()));
  for (size_t stage = 0; stage < stages; ++stage) {
    ir::StageChoice choice{.devices = {}, .micro_batch = Samples(int64_t{4} << dice.below(3))};
    const size_t first = dice.below(devices), count = dice.below(2) == 0 ? 1 : 1 + dice.below(devices);
    for (size_t i = 0; i < count; ++i) choice.devices.emplace_back((first + i) % devices);
    std::ranges::sort(choice.devices);
    assignment.choice.push_back(std::move(choice));
  }
  return assignment;
}

/// Hosts of two of the devices where a bandwidth between hosts is given; else all are alike.
ir::Cluster cluster_of(size_t devices, std::optional<double> between_hosts) {
  ir::Cluster cluster = ir::equal_devices(static_cast<int>(devices));
  if (!between_hosts) return cluster;
  cluster.levels = {{.group = 2, .latency = Seconds(1e-5), .bandwidth = BytesPerSecond(300e9)},
                    {.group = static_cast<int>(devices + devices % 2),
                     .latency = Seconds(2e-5),
                     .bandwidth = BytesPerSecond(*between_hosts)}};
  return cluster;
}

/// Of random plans, the closed form over the simulated step, ascending.
std::vector<double> ratios_of_random_plans(size_t plans, std::optional<double> between_hosts = {}) {
  std::vector<double> ratios;
  for (uint64_t seed = 0; ratios.size() < plans; ++seed) {
    tests::Dice dice(seed);
    const ir::PlanGraph graph = tests::random_sp_graph(seed, 4 + dice.below(6), Samples(32));
    const size_t devices = between_hosts ? 3 + dice.below(6) : 1 + dice.below(4);
    const ir::Cluster cluster = cluster_of(devices, between_hosts);
    ir::Assignment assignment = random_assignment(dice, graph, devices);
    const auto stages = build_stage_graph(graph, assignment);
    if (!stages) continue;  // stages that wait for each other
    const double simulated = step_of_plan(graph, cluster, {}, assignment, kMaxSimulated, 0);
    REQUIRE(simulated < kInfinity);
    ratios.push_back(cost::iteration_time(*stages, cluster).total() / simulated);
  }
  std::ranges::sort(ratios);
  return ratios;
}

}  // namespace

TEST_CASE("the closed form of a step is that of its simulation for most plans, on devices that stages share too") {
  const std::vector<double> ratios = ratios_of_random_plans(250);
  const auto quantile = [&](double part) { return ratios[static_cast<size_t>(part * double(ratios.size() - 1))]; };
  CHECK(quantile(0.05) > 0.75);
  CHECK(quantile(0.25) > 0.9);
  CHECK(quantile(0.5) == doctest::Approx(1).epsilon(1e-3));
  CHECK(quantile(0.95) < 1.05);
  CHECK(ratios.back() < 1.5);
}

TEST_CASE("the closed form counts each way of a link between hosts by itself, as the simulator does") {
  // Items take seconds for each sample, and messages bytes: at a tenth of a byte a second the links decide.
  for (const double bandwidth : {10.0, 1.0, 0.1}) {
    CAPTURE(bandwidth);
    const std::vector<double> ratios = ratios_of_random_plans(250, bandwidth);
    const auto quantile = [&](double part) { return ratios[static_cast<size_t>(part * double(ratios.size() - 1))]; };
    CHECK(quantile(0.05) > 0.5);
    CHECK(quantile(0.5) > 0.8);
    CHECK(quantile(0.5) < 1 + 1e-3);
    CHECK(quantile(0.95) < 1.06);
    CHECK(ratios.back() < 1.5);
  }
}
