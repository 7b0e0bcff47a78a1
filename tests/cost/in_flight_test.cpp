#include "cost/in_flight.h"

#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "cost/memory.h"
#include "tests/support/plan_graphs.h"
#include "tests/support/test_data.h"

using namespace graphpipe;
using namespace graphpipe::cost;
using ir::StageId;

namespace {

nlohmann::json recorded(const std::string& name) {
  return nlohmann::json::parse(tests::read_data("schedules/derived/dag/" + name + ".json"));
}

/// In-flight samples of stages given by their predecessors.
std::vector<int64_t> rule(const std::vector<std::vector<size_t>>& predecessors,
                          const std::vector<InFlightStage>& stages, double period, int64_t batch) {
  std::vector<InFlightDemand> flights(stages.size());
  std::vector<int64_t> samples(stages.size());
  for (size_t s = stages.size(); s-- > 0;) {
    std::vector<InFlightDemand> readers;
    for (size_t r = 0; r < stages.size(); ++r)
      for (size_t p : predecessors[r])
        if (p == s) readers.push_back(flights[r]);
    flights[s] = in_flight_demand(stages[s], readers, period, batch);
    samples[s] = flights[s].samples;
  }
  return samples;
}

InFlightStage unit(int64_t micro_batch, int k = 1) {
  return {.micro_batch = micro_batch, .k = k, .seconds_per_sample = 3};
}

std::vector<int64_t> chain_rule(std::vector<InFlightStage> stages, int64_t batch) {
  std::vector<std::vector<size_t>> predecessors(stages.size());
  for (size_t i = 1; i < stages.size(); ++i) predecessors[i] = {i - 1};
  return rule(predecessors, stages, 3, batch);
}

}  // namespace

TEST_CASE("the rule gives the exact in-flight numbers of the recorded cases, latency and unequal costs included") {
  for (const nlohmann::json& item : recorded("inflight_rule_cases")) {
    std::vector<InFlightStage> stages;
    for (size_t i = 0; i < item["forward"].size(); ++i)
      stages.push_back({.micro_batch = 1,
                        .k = 1,
                        .seconds_per_sample = item["forward"][i].get<double>() + item["backward"][i].get<double>(),
                        .hop_seconds = 2 * item["latency"].get<double>()});
    CAPTURE(item["predecessors"].dump());
    CHECK(rule(item["predecessors"].get<std::vector<std::vector<size_t>>>(), stages, item["period"].get<double>(),
               item["micro_batches"].get<int64_t>()) == item["in_flight"].get<std::vector<int64_t>>());
  }
}

TEST_CASE("the rule gives the recorded numbers of stages with different micro-batch sizes and k") {
  for (const char* name : {"graphpipe_fig5_like_chain", "two_towers_mixed_b", "diamond_mixed_b"}) {
    const nlohmann::json item = recorded(name);
    std::vector<InFlightStage> stages;
    for (size_t i = 0; i < item["k"].size(); ++i)
      stages.push_back(unit(item["micro_batch_size"][i].get<int64_t>(), item["k"][i].get<int>()));
    CAPTURE(name);
    CHECK(rule(item["predecessors"].get<std::vector<std::vector<size_t>>>(), stages, 3, item["batch"].get<int64_t>()) ==
          item["inflight_samples"].get<std::vector<int64_t>>());
  }
}

TEST_CASE("GraphPipe's tables: uniform sizes give 12, sizes 1, 2, 4 give 10; strategy files of its runtime") {
  CHECK(chain_rule({unit(4), unit(4), unit(4)}, 64).front() == 12);
  CHECK(chain_rule({unit(1), unit(2), unit(4)}, 64).front() == 10);
  CHECK(chain_rule(std::vector(6, unit(64)), 1024) == std::vector<int64_t>{384, 320, 256, 192, 128, 64});
  CHECK(chain_rule({unit(1, 2), unit(2), unit(2), unit(2), unit(2), unit(2), unit(2), unit(2)}, 64) ==
        std::vector<int64_t>{16, 14, 12, 10, 8, 6, 4, 2});
  CHECK(rule({{}, {}, {}, {}, {0, 1, 2, 3}, {4}}, std::vector(6, unit(64)), 3, 1024) ==
        std::vector<int64_t>{192, 192, 192, 192, 128, 64});
}

TEST_CASE("laws: never below a round, never a deadlock, never above the batch, fewer at a longer period") {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    const size_t count = 2 + random() % 6;
    std::vector<std::vector<size_t>> predecessors(count);
    for (size_t i = 1; i < count; ++i) predecessors[i] = {random() % i};
    std::vector<InFlightStage> stages;
    for (size_t i = 0; i < count; ++i)
      stages.push_back({.micro_batch = int64_t{1} << random() % 4,
                        .k = 1 << random() % 2,
                        .seconds_per_sample = 0.25 * static_cast<double>(random() % 8),
                        .hop_seconds = 0.5 * static_cast<double>(random() % 4)});
    const int64_t batch = 64;
    const auto slow = rule(predecessors, stages, 4, batch), fast = rule(predecessors, stages, 2, batch);
    const auto fewest = rule(predecessors, stages, std::numeric_limits<double>::infinity(), batch);
    for (size_t i = 0; i < count; ++i) {
      CHECK(slow[i] <= fast[i]);
      CHECK(fewest[i] <= slow[i]);
      CHECK(fewest[i] >= std::min(batch, stages[i].round()));
      CHECK(fast[i] <= batch);
      CHECK(fast[i] % stages[i].micro_batch == 0);
      for (size_t p : predecessors[i])
        CHECK(fewest[p] >=
              std::min(batch, fewest[i] + stages[p].round() - std::gcd(stages[p].round(), stages[i].round())));
    }
  }
}

TEST_CASE("in flight as planned: a chain of equal stages holds one more at each stage upstream") {
  const ir::PlanGraph graph = tests::chain_graph(4, {.seconds = 1, .bytes = 0}, Samples(16));
  ir::Assignment assignment;
  for (size_t i = 0; i < 4; ++i) {
    assignment.stage_of.push_back(StageId(i));
    assignment.choice.push_back({.devices = {ir::DeviceId(i)}, .micro_batch = Samples(2)});
  }
  const auto stages = build_stage_graph(graph, assignment);
  const InFlightPlan flight = in_flight(*stages, ir::equal_devices(4));
  CHECK(flight.fits);
  for (size_t i = 0; i < 4; ++i) CHECK(flight.samples[StageId(i)] == Samples(static_cast<int64_t>(8 - 2 * i)));
}

TEST_CASE("where memory is short, in-flight numbers shrink until they fit, at a longer period") {
  const ir::PlanGraph graph = tests::chain_graph(4, {.seconds = 1, .bytes = 1000}, Samples(16));
  ir::Assignment assignment;
  for (size_t i = 0; i < 4; ++i) {
    assignment.stage_of.push_back(StageId(i));
    assignment.choice.push_back({.devices = {ir::DeviceId(i)}, .micro_batch = Samples(1)});
  }
  const auto stages = build_stage_graph(graph, assignment);
  ir::Cluster cluster = ir::equal_devices(4);
  const InFlightPlan roomy = in_flight(*stages, cluster);
  const MemoryParts first = stage_memory(*stages, StageId(0u), roomy.samples[StageId(0u)]);
  for (ir::Device& device : cluster.devices) device.memory = first.total() - Bytes(1);
  const InFlightPlan tight = in_flight(*stages, cluster);
  CHECK(tight.fits);
  CHECK(tight.period > roomy.period);
  CHECK(tight.samples[StageId(0u)] < roomy.samples[StageId(0u)]);
  for (ir::Device& device : cluster.devices) device.memory = Bytes(10);
  CHECK_FALSE(in_flight(*stages, cluster).fits);
}
