#include "cost/limits.h"

#include <doctest/doctest.h>

#include "cost/lower_bound.h"
#include "cost/memory.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::cost;
using ir::StageId;

namespace {

ir::StageGraph stages_of(const ir::PlanGraph& graph, Samples micro_batch) {
  ir::Assignment assignment;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    assignment.stage_of.push_back(StageId(i));
    assignment.choice.push_back({.devices = {ir::DeviceId(i)}, .micro_batch = micro_batch});
  }
  return *build_stage_graph(graph, assignment);
}

Limit limit_at_its_own_speed(const ir::StageGraph& graph, const ir::Cluster& cluster) {
  return limit_of(graph, cluster, iteration_time(graph, cluster).total());
}

/// Seconds of node 1 are `heavy`; the others take one per sample.
ir::PlanGraph chain_with_heavy(double heavy, Samples batch) {
  return tests::plan_graph({{}, {0}, {1}}, {{.seconds = 1}, {.seconds = heavy}, {.seconds = 1}}, batch);
}

}  // namespace

TEST_CASE("an even chain with many micro-batches is limited by work, and only more or faster devices help") {
  const ir::StageGraph plan = stages_of(chain_with_heavy(1, Samples(64)), Samples(1));
  const Limit limit = limit_at_its_own_speed(plan, ir::equal_devices(3));
  CHECK(limit.kind == LimitKind::kWork);
  CHECK(limit.share > 0.9);
  CHECK(limit.sentence.find("more or faster ones") != std::string::npos);
}

TEST_CASE("a heavy stage is named; where it mixes samples the sentence says why it cannot be spread") {
  ir::PlanGraph graph = chain_with_heavy(5, Samples(64));
  const Limit heavy = limit_at_its_own_speed(stages_of(graph, Samples(1)), ir::equal_devices(3));
  CHECK(heavy.kind == LimitKind::kWork);
  CHECK(heavy.stage == StageId(1u));
  CHECK(heavy.sentence.find("stage 1 (device 1)") != std::string::npos);
  CHECK(heavy.sentence.find("2.14 times the mean") != std::string::npos);
  CHECK(heavy.sentence.find("so replicas of it would lift it") != std::string::npos);
  const ir::StageGraph stages = stages_of(graph, Samples(1));
  const double step = iteration_time(stages, ir::equal_devices(3)).total();
  const Limit unreplicated = limit_of(stages, ir::equal_devices(3), step, 1, /*takes_replicas=*/false);
  CHECK(unreplicated.sentence.find("a policy that takes replicas, such as kfkb, would lift it") != std::string::npos);
  graph.nodes[ir::PlanNodeId(1u)].scope = ir::SampleScope::kMicroBatch;
  CHECK(limit_at_its_own_speed(stages_of(graph, Samples(1)), ir::equal_devices(3)).kind == LimitKind::kMixing);
}

TEST_CASE("the devices of a stage with many replicas are named as a range") {
  const ir::PlanGraph graph = tests::plan_graph({{}}, {{.seconds = 1}}, Samples(64));
  ir::Assignment assignment;
  assignment.stage_of.push_back(StageId(0u));
  assignment.choice.push_back({.micro_batch = Samples(64)});
  for (size_t device = 0; device < 8; ++device) assignment.choice[StageId(0u)].devices.push_back(ir::DeviceId(device));
  const Limit limit = limit_at_its_own_speed(*build_stage_graph(graph, assignment), ir::equal_devices(8));
  CHECK(limit.sentence.find("stage 0 (devices 0 to 7)") != std::string::npos);
}

TEST_CASE("the stage whose device works longest is named, also where the longest path goes through another") {
  const ir::PlanGraph graph = tests::plan_graph({{}, {0}}, {{.seconds = 2}, {.seconds = 1.2}}, Samples(2));
  const ir::StageGraph plan = stages_of(graph, Samples(1));
  const ir::Cluster cluster = ir::equal_devices(2);
  CHECK(iteration_time(plan, cluster).limiting == StageId(1u));  // 2 before and after it, and two items of 1.2
  const Limit limit = limit_at_its_own_speed(plan, cluster);
  CHECK(limit.kind == LimitKind::kWork);
  CHECK(limit.stage == StageId(0u));
  CHECK(limit.share == doctest::Approx(4 / 4.4).epsilon(0.01));
  CHECK(limit.sentence.find("stage 0 (device 0), 91 % of the step; it has 1.25 times the mean") != std::string::npos);
}

TEST_CASE("of stages that share the busiest device the heaviest is named") {
  ir::PlanGraph graph =
      tests::plan_graph({{}, {}, {0, 1}}, {{.seconds = 5}, {.seconds = 4}, {.seconds = 0.1}}, Samples(8));
  graph.nodes[ir::PlanNodeId(2u)].scope = ir::SampleScope::kBatch;
  ir::Assignment assignment;
  for (size_t i = 0; i < 3; ++i) {
    assignment.stage_of.push_back(StageId(i));
    assignment.choice.push_back({.devices = {ir::DeviceId(i % 2)}, .micro_batch = Samples(8)});
  }
  const ir::StageGraph plan = *build_stage_graph(graph, assignment);
  const Limit limit = limit_at_its_own_speed(plan, ir::equal_devices(2));
  CAPTURE(limit.sentence);
  CHECK(limit.kind == LimitKind::kWork);
  CHECK(limit.stage == StageId(0u));
}

TEST_CASE("few micro-batches: warm-up and drain; lifted by smaller ones") {
  const ir::PlanGraph graph = chain_with_heavy(1, Samples(8));
  const Limit limit = limit_at_its_own_speed(stages_of(graph, Samples(8)), ir::equal_devices(3));
  CHECK(limit.kind == LimitKind::kWarmUpAndDrain);
  CHECK(limit.sentence.find("smaller micro-batches") != std::string::npos);
  CHECK(limit_at_its_own_speed(stages_of(graph, Samples(1)), ir::equal_devices(3)).kind != limit.kind);
}

TEST_CASE("where starting operators dominates, smaller micro-batches are not offered") {
  ir::PlanGraph graph = chain_with_heavy(0, Samples(8));
  for (ir::PlanNode& node : graph.nodes)
    node.forward = node.input_gradient = node.weight_gradient = ir::SampleFunction::polynomial(1, 0);
  const Limit limit = limit_at_its_own_speed(stages_of(graph, Samples(8)), ir::equal_devices(3));
  CHECK(limit.kind == LimitKind::kWarmUpAndDrain);
  CHECK(limit.sentence.find("a larger batch") != std::string::npos);
  CHECK(limit.sentence.find("smaller micro-batches") == std::string::npos);
}

TEST_CASE("a slow link limits, and a faster one lifts it") {
  const ir::PlanGraph graph =
      tests::plan_graph({{}, {0}}, {{.seconds = 1, .bytes = 1000}, {.seconds = 1, .bytes = 1000}}, Samples(64));
  const ir::StageGraph plan = stages_of(graph, Samples(1));
  ir::Cluster cluster = ir::equal_devices(2);
  cluster.levels = {{.group = 2, .latency = Seconds(0), .bandwidth = BytesPerSecond(100)}};
  CHECK(limit_at_its_own_speed(plan, cluster).kind == LimitKind::kLink);
  cluster.levels.front().bandwidth = BytesPerSecond(1e6);
  CHECK(limit_at_its_own_speed(plan, cluster).kind == LimitKind::kWork);
}

TEST_CASE("replicas of two hosts share the link between these: its bytes bound the step, and limit it") {
  const ir::PlanGraph graph =
      tests::plan_graph({{}, {0}}, {{.seconds = 1, .bytes = 1000}, {.seconds = 1, .bytes = 1000}}, Samples(64));
  ir::Cluster cluster = ir::equal_devices(8);
  cluster.levels = {{.group = 4, .latency = Seconds(0), .bandwidth = BytesPerSecond(1e9)},
                    {.group = 8, .latency = Seconds(0), .bandwidth = BytesPerSecond(1000)}};
  const auto plan_on = [&](const std::vector<size_t>& above, const std::vector<size_t>& below) {
    ir::Assignment assignment;
    for (const std::vector<size_t>* devices : {&above, &below}) {
      assignment.stage_of.push_back(StageId(assignment.choice.size()));
      ir::StageChoice choice{.micro_batch = Samples(4)};
      for (const size_t device : *devices) choice.devices.push_back(ir::DeviceId(device));
      assignment.choice.push_back(std::move(choice));
    }
    return *build_stage_graph(graph, assignment);
  };
  const ir::StageGraph apart = plan_on({0, 1, 2, 3}, {4, 5, 6, 7});
  // One direction: 64 samples of 1000 bytes.
  CHECK(busiest_link(apart, cluster).seconds == doctest::Approx(64));
  CHECK(step_bound(apart, cluster).link == doctest::Approx(64));
  CHECK(busiest_link(plan_on({4}, {0}), cluster).seconds == doctest::Approx(64));
  CHECK(busiest_link(plan_on({0}, {1}), cluster).seconds == doctest::Approx(64 * 1000 / 1e9));
  // Which of several links carries how much is the schedule's.
  for (const ir::StageGraph& plan : {plan_on({0, 1}, {2, 3}), plan_on({0, 4}, {1, 5}), plan_on({0, 4}, {1})})
    CHECK(busiest_link(plan, cluster).seconds == 0);
  const Limit limit = limit_of(apart, cluster, 100);
  CHECK(limit.kind == LimitKind::kLink);
  CHECK(limit.share == doctest::Approx(0.64));
  CAPTURE(limit.sentence);
  CHECK(limit.sentence.find("64 % of the step with those that share their link") != std::string::npos);
  // An order that adds more than the link carries.
  CHECK(limit_of(apart, cluster, 1000).kind == LimitKind::kOrder);
}

TEST_CASE("memory limits where fewer samples fit than the bottleneck needs, and what it says is missing lifts it") {
  const ir::PlanGraph graph = tests::chain_graph(4, {.seconds = 1, .bytes = 1 << 20}, Samples(64));
  const ir::StageGraph plan = stages_of(graph, Samples(1));
  ir::Cluster cluster = ir::equal_devices(4);
  cluster.levels = {{.group = 4, .latency = Seconds(0), .bandwidth = BytesPerSecond(1e18)}};
  const auto costs = stage_costs(plan, cluster);
  const auto full = in_flight_at(plan, costs, bottleneck_period(plan, cluster, costs));
  const auto peaks = peak_memory(plan, cluster, full);
  const Bytes needed = *std::max_element(peaks.begin(), peaks.end());
  for (ir::Device& device : cluster.devices) device.memory = needed - Bytes(2 << 20);
  const Limit limit = limit_at_its_own_speed(plan, cluster);
  CHECK(limit.kind == LimitKind::kMemory);
  CHECK(limit.share > 0);
  CAPTURE(limit.sentence);
  CHECK(limit.sentence.find("2 MiB more") != std::string::npos);
  // The code of the stages may take less than these bounds: an order at full speed is not held back.
  const double at_full_speed = iteration_time(plan, ir::with_memory(cluster, 2)).total();
  CHECK(limit_of(plan, cluster, at_full_speed).kind == LimitKind::kWork);
  for (ir::Device& device : cluster.devices) device.memory = needed;
  CHECK(limit_at_its_own_speed(plan, cluster).kind == LimitKind::kWork);
}

TEST_CASE("heavy weights: the updates, with any number of stages") {
  const ir::PlanGraph graph = tests::chain_graph(3, {.weight_bytes = 1'000'000}, Samples(64));
  ir::Cluster cluster = ir::equal_devices(3);
  for (ir::Device& device : cluster.devices) device.memory_bandwidth = BytesPerSecond(1e4);
  const Limit limit = limit_at_its_own_speed(stages_of(graph, Samples(1)), cluster);
  CAPTURE(limit.sentence);
  CHECK(limit.kind == LimitKind::kUpdate);
  CHECK(limit.share > 0.5);
  for (ir::Device& device : cluster.devices) device.memory_bandwidth = BytesPerSecond(1e9);
  CHECK(limit_at_its_own_speed(stages_of(graph, Samples(1)), cluster).kind == LimitKind::kWork);
}

TEST_CASE("a step with many updates is limited by them, not by its order") {
  const ir::PlanGraph graph = tests::chain_graph(2, {.weight_bytes = 1'000'000}, Samples(64));
  ir::Cluster cluster = ir::equal_devices(2);
  for (ir::Device& device : cluster.devices) device.memory_bandwidth = BytesPerSecond(1e6);
  const ir::StageGraph plan = stages_of(graph, Samples(1));
  // Each takes 3 s, as an item does; there is one in the closed form.
  const double step = iteration_time(plan, cluster).total() + 199 * 3;
  CHECK(limit_of(plan, cluster, step, 200).kind == LimitKind::kUpdate);
  CHECK(limit_of(plan, cluster, step).kind == LimitKind::kOrder);
}

TEST_CASE("a schedule that takes twice what the plan needs is limited by its order") {
  const ir::StageGraph plan = stages_of(chain_with_heavy(1, Samples(64)), Samples(1));
  const ir::Cluster cluster = ir::equal_devices(3);
  const Limit limit = limit_of(plan, cluster, 2 * iteration_time(plan, cluster).total());
  CHECK(limit.kind == LimitKind::kOrder);
  CHECK(limit.share == doctest::Approx(0.5));
}

TEST_CASE("every plan has one sentence, with a share between 0 and 1") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph = tests::random_dag(seed, 2 + seed % 6, 3, Samples(8));
    const ir::StageGraph plan = stages_of(graph, Samples(1 << seed % 4));
    const ir::Cluster cluster = ir::equal_devices(static_cast<int>(graph.nodes.size()));
    const Limit limit = limit_of(plan, cluster, iteration_time(plan, cluster).total() * (1 + 0.1 * (seed % 7)));
    CHECK(limit.share > 0);
    CHECK(limit.share <= 1 + 1e-9);
    CHECK(limit.sentence.find("would lift it") != std::string::npos);
    CHECK(limit.sentence.find('\n') == std::string::npos);
    CHECK_FALSE(name_of(limit.kind).empty());
  }
}

TEST_CASE("what has no gradient is as far ahead as its producer, which stages with gradients between them hold back") {
  const auto bytes_of_last = [](Samples batch, bool gradients_between) {
    ir::StageGraph graph =
        stages_of(tests::plan_graph({{}, {0}, {0, 1}}, {{.seconds = 1, .bytes = 5}}, batch), Samples(1));
    for (ir::StageEdge& edge : graph.edges)
      if (edge.to == StageId(2u) ? edge.from == StageId(0u) : !gradients_between) edge.gradient_count = 0;
    IdMap<StageId, Samples> in_flight(3);
    for (const StageId stage : graph.stage_ids()) in_flight[stage] = Samples(3 - static_cast<int64_t>(stage.index()));
    return peak_memory(graph, ir::equal_devices(3), in_flight)[ir::DeviceId(2u)];
  };
  CHECK(bytes_of_last(Samples(64), true) == bytes_of_last(Samples(1024), true));
  CHECK(bytes_of_last(Samples(64), false) < bytes_of_last(Samples(1024), false));
}

TEST_CASE("beyond the work of a single stage lies what starting it costs, and no order") {
  const ir::StageGraph one = stages_of(tests::plan_graph({{}}, {{.seconds = 1}}, Samples(1)), Samples(1));
  const ir::Cluster cluster = ir::equal_devices(1);
  const Limit limit = limit_of(one, cluster, 2 * iteration_time(one, cluster).total());
  CHECK(limit.kind == LimitKind::kWork);
  CHECK(limit.share == doctest::Approx(0.5));
  CHECK(limit.sentence.find("what it costs to start the step and its passes, 50 % of the step") == 0);
}
