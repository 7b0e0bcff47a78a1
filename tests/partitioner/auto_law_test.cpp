// `auto` with a free parameter never loses to `auto` with the parameter fixed.

#include <doctest/doctest.h>

#include <algorithm>
#include <span>

#include "partitioner/planner.h"
#include "tests/support/case_count.h"
#include "tests/support/paper_models.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;

namespace {

ir::Cluster small_cluster(int devices, double latency, int64_t memory) {
  ir::Cluster cluster = ir::equal_devices(devices);
  for (ir::Device& device : cluster.devices) device.memory = Bytes(memory);
  cluster.levels = {{.group = devices, .latency = Seconds(latency), .bandwidth = BytesPerSecond(400)}};
  return cluster;
}

/// Seconds of the best step, or infinity without a plan.
double best_step(const PlanRequest& request) {
  const auto answer = plan("auto", request);
  return answer.ok() ? answer->candidates.front().step_seconds : kInfinity;
}

void check_fixed_is_no_better(const PlanRequest& free, const ir::Cluster& smaller) {
  const double min_seconds = best_step(free) * (1 - 1e-9);
  for (int64_t size = 1; size <= free.graph->batch.count; ++size) {
    CAPTURE(size);
    PlanRequest fixed = free;
    fixed.micro_batch = Samples(size);
    CHECK(best_step(fixed) >= min_seconds);
  }
  for (int stages = 1; stages <= static_cast<int>(free.cluster->devices.size()); ++stages) {
    CAPTURE(stages);
    PlanRequest fixed = free;
    fixed.stages = stages;
    CHECK(best_step(fixed) >= min_seconds);
  }
  for (int replicas = 1; replicas <= static_cast<int>(free.cluster->devices.size()); ++replicas) {
    CAPTURE(replicas);
    PlanRequest fixed = free;
    fixed.replicas = {{0, replicas}};
    CHECK(best_step(fixed) >= min_seconds);
  }
  PlanRequest fewer = free;
  fewer.cluster = &smaller;
  CHECK(best_step(fewer) >= min_seconds);
}

}  // namespace

TEST_CASE("auto with free parameters is never behind auto with one of them fixed, on graphs of every kind") {
  for (uint64_t seed = 0; seed < tests::case_count(6, 12); ++seed) {
    CAPTURE(seed);
    const Samples batch(seed % 3 == 0 ? 12 : 8);
    const ir::PlanGraph graph =
        seed % 2 == 0 ? tests::random_dag(seed, 5 + seed, 3, batch) : tests::random_sp_graph(seed, 5 + seed, batch);
    const int devices = 2 + static_cast<int>(seed % 3);
    const double latency = seed % 4 == 1 ? 2 : 0.125;
    const int64_t memory = seed % 3 == 1 ? 3000 : 100'000;
    const ir::Cluster cluster = small_cluster(devices, latency, memory);
    ir::Cluster smaller = cluster;
    smaller.devices.resize(static_cast<size_t>(devices + 1) / 2);
    check_fixed_is_no_better({.graph = &graph, .cluster = &cluster}, smaller);
  }
}

TEST_CASE("on the paper's models no size that was better once is better than auto's own choice") {
  const struct {
    int64_t batch;
    int devices;
    std::vector<int64_t> sizes;
  } cases[] = {{1024, 8, {57, 16, 32, 64, 128, 256}}, {1000, 6, {77}}};
  for (const auto& [batch, devices, sizes] : std::span(cases).first(tests::case_count(1, std::size(cases)))) {
    const ir::PlanGraph graph = tests::candle_uno(batch);
    const ir::Cluster cluster = tests::summit(devices);
    const PlanRequest free{.graph = &graph, .cluster = &cluster, .threads = 2};
    const double min_seconds = best_step(free) * (1 - 1e-9);
    for (const int64_t size : std::span(sizes).first(tests::case_count(1, sizes.size()))) {
      CAPTURE(devices);
      CAPTURE(size);
      PlanRequest fixed = free;
      fixed.micro_batch = Samples(size);
      CHECK(best_step(fixed) >= min_seconds);
    }
  }
}

TEST_CASE("the plans of auto do not depend on the number of threads") {
  const ir::PlanGraph graph = tests::random_sp_graph(7, 60, Samples(64));
  const ir::Cluster cluster = small_cluster(8, 0.125, 100'000);
  PlanRequest request{.graph = &graph, .cluster = &cluster};
  const auto alone = plan("auto", request);
  REQUIRE(alone.ok());
  request.threads = 4;
  const auto together = plan("auto", request);
  REQUIRE(together.ok());
  REQUIRE(together->candidates.size() == alone->candidates.size());
  for (size_t i = 0; i < alone->candidates.size(); ++i) {
    CHECK(together->candidates[i].assignment == alone->candidates[i].assignment);
    CHECK(together->candidates[i].step_seconds == alone->candidates[i].step_seconds);
  }
}
