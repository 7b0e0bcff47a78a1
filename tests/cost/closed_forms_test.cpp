#include <doctest/doctest.h>

#include <algorithm>

#include "cost/iteration_time.h"
#include "cost/link_loads.h"
#include "cost/lower_bound.h"
#include "cost/memory.h"
#include "tests/support/plan_graphs.h"
#include "wire/all_reduce.h"

using namespace graphpipe;
using namespace graphpipe::cost;
using ir::DeviceId;
using ir::StageId;

namespace {

/// One stage per node, on `devices` devices in turn.
ir::StageGraph one_stage_per_node(const ir::PlanGraph& graph, Samples micro_batch, size_t devices) {
  ir::Assignment assignment;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    assignment.stage_of.push_back(StageId(i));
    assignment.choice.push_back({.devices = {DeviceId(i % devices)}, .micro_batch = micro_batch});
  }
  return *build_stage_graph(graph, assignment);
}

/// On a device each.
ir::StageGraph one_stage_per_node(const ir::PlanGraph& graph, Samples micro_batch) {
  return one_stage_per_node(graph, micro_batch, graph.nodes.size());
}

}  // namespace

TEST_CASE("a chain of P equal stages takes (M + P - 1) items when transfers cost nothing") {
  for (size_t stages = 1; stages <= 6; ++stages)
    for (int64_t size : {1, 2, 4}) {
      const ir::PlanGraph graph = tests::chain_graph(stages, {.seconds = 1, .bytes = 0}, Samples(16));
      const ir::StageGraph plan = one_stage_per_node(graph, Samples(size));
      const ir::Cluster cluster = ir::equal_devices(static_cast<int>(stages));
      const double item = 3.0 * static_cast<double>(size);
      const double expected = item * static_cast<double>(16 / size + static_cast<int64_t>(stages) - 1);
      CHECK(iteration_time(plan, cluster).total() == doctest::Approx(expected));
      CHECK(step_bound(plan, cluster).total() <= expected * (1 + 1e-9));
    }
}

TEST_CASE("the stages of a device add up once: v of them on each of P devices take (M v + P - 1) items") {
  for (size_t devices = 1; devices <= 4; ++devices)
    for (size_t chunks = 1; chunks <= 3; ++chunks)
      for (int64_t micro_batches : {1, 2, 8}) {
        const ir::PlanGraph graph =
            tests::chain_graph(devices * chunks, {.seconds = 1, .bytes = 0}, Samples(micro_batches));
        const ir::StageGraph plan = one_stage_per_node(graph, Samples(1), devices);
        const auto p = static_cast<int64_t>(devices), v = static_cast<int64_t>(chunks);
        // With few micro-batches it is the way of one through all stages.
        const int64_t items = std::max(micro_batches * v + p - 1, micro_batches + v * p - 1);
        CHECK(iteration_time(plan, ir::equal_devices(static_cast<int>(devices))).total() ==
              doctest::Approx(3.0 * static_cast<double>(items)));
      }
}

TEST_CASE("concurrent branches make the pipeline shallower and the step shorter") {
  const Samples batch(32);
  const ir::PlanGraph chain = tests::chain_graph(8, {.seconds = 1, .bytes = 0}, batch);
  const ir::PlanGraph branches =
      tests::plan_graph({{}, {0}, {1}, {2}, {}, {4}, {5}, {3, 6}}, {{.seconds = 1, .bytes = 0}}, batch);
  const ir::Cluster cluster = ir::equal_devices(8);
  // GraphPipe's case: depth 8 against 5, here at b = 4: (8 + 7) / (8 + 4) = 1.25.
  const double deep = iteration_time(one_stage_per_node(chain, Samples(4)), cluster).total();
  const double wide = iteration_time(one_stage_per_node(branches, Samples(4)), cluster).total();
  CHECK(deep / wide == doctest::Approx(1.25));
}

TEST_CASE("bounds of a graph are below the time of its plans, and follow work, largest node and path") {
  const ir::PlanGraph graph = tests::chain_graph(4, {.seconds = 1, .bytes = 8}, Samples(8));
  const ir::Cluster cluster = ir::equal_devices(4);
  const PlanBound bound = plan_bound(graph, cluster);
  CHECK(bound.work == doctest::Approx(3));
  CHECK(bound.largest_node == doctest::Approx(0.75));
  CHECK(bound.critical_path == doctest::Approx(8));
  for (int64_t size : {1, 2, 4, 8}) {
    const ir::StageGraph plan = one_stage_per_node(graph, Samples(size));
    CHECK(bound.step(Samples(8)) <= iteration_time(plan, cluster).total());
    CHECK(bound.time_per_sample() <= bottleneck_time_per_sample(plan, cluster) * (1 + 1e-12));
  }
}

TEST_CASE("replicas share an item and add an all-reduce; shared weights add a reduction over their stages") {
  ir::PlanGraph graph = tests::chain_graph(2, {.seconds = 1, .bytes = 0, .weight_bytes = 1 << 20}, Samples(8));
  ir::Assignment assignment;
  assignment.stage_of = IdMap<ir::PlanNodeId, StageId>(2, StageId(0u));
  assignment.choice.push_back({.devices = {DeviceId(0u), DeviceId(1u)}, .micro_batch = Samples(4)});
  const ir::Cluster cluster = ir::equal_devices(2);
  const auto plan = build_stage_graph(graph, assignment);
  const StageCost cost = stage_cost(*plan, cluster, StageId(0u));
  CHECK(cost.item() == doctest::Approx(2 * 3 * 2));
  CHECK(cost.period() == doctest::Approx(3));
  // Two rounds of a half; a half is added at 10 GB/s of traffic, three bytes each.
  CHECK(cost.all_reduce == doctest::Approx(2097152 / 5e9 + 1e-5 + 1048576 * 3 / 10e9));
  CHECK(iteration_time(*plan, cluster).total() == doctest::Approx(24 + cost.all_reduce + cost.update));
  CHECK(cost.update == doctest::Approx(2097152 * 3 / 10e9));

  graph.nodes[ir::PlanNodeId(1u)].weights = graph.nodes[ir::PlanNodeId(0u)].weights;
  const ir::StageGraph tied = one_stage_per_node(graph, Samples(4));
  const IterationTime time = iteration_time(tied, cluster);
  CHECK(tied.shared.size() == 1);
  CHECK(time.total() > (2 + 1) * 12.0);
}

TEST_CASE("memory counts weights, gradients, optimizer state, and the stash of what is in flight") {
  ir::PlanGraph graph = tests::chain_graph(2, {.seconds = 1, .bytes = 10, .weight_bytes = 100}, Samples(8));
  graph.optimizer_state_per_weight_byte = 2;
  const ir::StageGraph plan = one_stage_per_node(graph, Samples(2));
  const MemoryParts parts = stage_memory(plan, StageId(0u), Samples(4));
  CHECK(parts.weights == Bytes(100));
  CHECK(parts.gradients == Bytes(100));
  CHECK(parts.optimizer == Bytes(200));
  CHECK(parts.stash == Bytes(2 * 20));
  CHECK(parts.boundary == Bytes(20));
  const IdMap<StageId, Samples> flight(2, Samples(4));
  CHECK(peak_memory(plan, ir::equal_devices(2), flight)[DeviceId(0u)] == parts.total());
  ir::Cluster small = ir::equal_devices(2);
  small.devices[DeviceId(0u)].memory = parts.total() - Bytes(7);
  CHECK(memory_shortfall(plan, small, flight) == Bytes(7));
}

TEST_CASE("memory counts what an update takes for itself, after the items or beside those in flight") {
  ir::PlanGraph graph = tests::chain_graph(2, {.seconds = 1, .bytes = 10, .weight_bytes = 100}, Samples(8));
  const auto total = [&](Bytes scratch) {
    for (ir::WeightGroup& weights : graph.weight_groups) weights.update_scratch = scratch;
    return stage_memory(one_stage_per_node(graph, Samples(2)), StageId(0u), Samples(4)).total();
  };
  const Bytes without = total(Bytes(0));
  CHECK(total(Bytes(30)) == without);  // less than an item
  CHECK(total(Bytes(1000)) == Bytes(2 * 100 + 1000));
  graph.versions = ir::WeightVersions::kTwo;
  CHECK(total(Bytes(1000)) ==
        Bytes(3 * 100 + 1000) + stage_memory(one_stage_per_node(graph, Samples(2)), StageId(0u), Samples(4)).stash);
}

TEST_CASE("memory counts further versions of trained weights: one, or one for each item in flight but the first") {
  ir::PlanGraph graph = tests::chain_graph(2, {.seconds = 1, .bytes = 10, .weight_bytes = 100}, Samples(8));
  const auto bytes = [&](ir::WeightVersions versions, int64_t in_flight) {
    graph.versions = versions;
    return stage_memory(one_stage_per_node(graph, Samples(2)), StageId(0u), Samples(in_flight)).versions;
  };
  CHECK(bytes(ir::WeightVersions::kOne, 6) == Bytes(0));
  CHECK(bytes(ir::WeightVersions::kTwo, 6) == Bytes(100));
  CHECK(bytes(ir::WeightVersions::kPerItem, 6) == Bytes(200));
  CHECK(bytes(ir::WeightVersions::kPerItem, 2) == Bytes(0));
  // The last stage, with one item in flight, holds the three versions of the first.
  graph.versions = ir::WeightVersions::kPerItemOfFirst;
  const ir::StageGraph stages = one_stage_per_node(graph, Samples(2));
  IdMap<StageId, Samples> numbers(2, Samples(6));
  numbers[StageId(1u)] = Samples(2);
  const Bytes last = peak_memory(stages, ir::equal_devices(2), numbers)[DeviceId(1u)];
  graph.versions = ir::WeightVersions::kOne;
  const ir::StageGraph without = one_stage_per_node(graph, Samples(2));
  CHECK(last == peak_memory(without, ir::equal_devices(2), numbers)[DeviceId(1u)] + Bytes(200));
}

TEST_CASE("each replica has room for a bucket, or the chunks on their way to it, while gradients are summed") {
  constexpr int64_t kChunk = wire::kChunkBytes;
  const ir::PlanGraph graph = tests::chain_graph(2, {.seconds = 1, .bytes = 10, .weight_bytes = 100}, Samples(8));
  ir::StageGraph plan = one_stage_per_node(graph, Samples(2));
  CHECK(reduction_bytes(plan, StageId(0u)) == Bytes(0));
  ir::Stage& stage = plan.stages[StageId(0u)];
  stage.choice.devices = {DeviceId(0u), DeviceId(1u)};
  CHECK(reduction_bytes(plan, StageId(0u)) == Bytes(100));  // small gradients move into one bucket
  const MemoryParts parts = stage_memory(plan, StageId(0u), Samples(6));
  // Items are gone when gradients are reduced.
  CHECK(parts.total() ==
        Bytes(100 + 100) + parts.optimizer + std::max(Bytes(100), parts.stash + parts.working + parts.boundary));
  stage.trainable_weight_bytes = Bytes(100 * kChunk);
  CHECK(reduction_bytes(plan, StageId(0u)) == Bytes(4 * kChunk));  // a chunk of each bucket in flight
  stage.choice.devices.push_back(DeviceId(2u));
  CHECK(reduction_bytes(plan, StageId(0u)) == Bytes(8 * kChunk));  // of two rounds
  for (unsigned device = 3; device < 12; ++device) stage.choice.devices.push_back(DeviceId(device));
  CHECK(reduction_bytes(plan, StageId(0u)) == Bytes(12 * kChunk));  // a bucket
  plan.shared.push_back({.group = ir::WeightGroupId(0u),
                         .stages = {StageId(0u), StageId(1u), StageId(1u)},
                         .gradient_bytes = Bytes(7 * kChunk)});
  CHECK(reduction_bytes(plan, StageId(0u)) == Bytes(14 * kChunk));
  CHECK(reduction_bytes(plan, StageId(1u)) == Bytes(14 * kChunk));
}

TEST_CASE("recomputing keeps only what comes in, and runs the forward again") {
  const ir::PlanGraph graph = tests::chain_graph(2, {.seconds = 1, .bytes = 10}, Samples(8));
  ir::StageGraph plan = one_stage_per_node(graph, Samples(2));
  const MemoryParts kept = stage_memory(plan, StageId(1u), Samples(8));
  const double item = stage_cost(plan, ir::equal_devices(2), StageId(0u)).item();
  plan.stages[StageId(0u)].choice.recompute = true;
  plan.stages[StageId(1u)].choice.recompute = true;
  CHECK(stage_memory(plan, StageId(1u), Samples(8)).stash < kept.stash);
  CHECK(stage_cost(plan, ir::equal_devices(2), StageId(0u)).item() == doctest::Approx(item + 2));
}

namespace {

/// Two hosts of four devices: nothing counts inside, a kilobyte takes a second between them.
ir::Cluster two_hosts() {
  ir::Cluster cluster = ir::equal_devices(8);
  cluster.levels = {{.group = 4, .latency = Seconds(0), .bandwidth = BytesPerSecond(1e9)},
                    {.group = 8, .latency = Seconds(0), .bandwidth = BytesPerSecond(1000)}};
  return cluster;
}

/// A stage for each node of a chain of two, 1000 bytes a sample between them, on these devices.
ir::StageGraph two_stages(const std::vector<size_t>& above, const std::vector<size_t>& below, Samples size_below,
                          ir::ReplicaMode mode = ir::ReplicaMode::kSplit) {
  const ir::PlanGraph graph =
      tests::plan_graph({{}, {0}}, {{.seconds = 1, .bytes = 1000}, {.seconds = 1}}, Samples(64));
  ir::Assignment assignment;
  for (const std::vector<size_t>* devices : {&above, &below}) {
    assignment.stage_of.push_back(StageId(assignment.choice.size()));
    ir::StageChoice choice{.micro_batch = devices == &above ? Samples(4) : size_below, .mode = mode};
    for (const size_t device : *devices) choice.devices.push_back(DeviceId(device));
    assignment.choice.push_back(std::move(choice));
  }
  return *build_stage_graph(graph, assignment);
}

}  // namespace

TEST_CASE("a link between hosts carries what all replicas send over it, each the samples that it has") {
  const ir::Cluster cluster = two_hosts();
  const auto seconds = [&](const ir::StageGraph& plan) {
    std::vector<double> result;
    for (const LinkLoad& load : link_loads(plan, cluster))
      if (load.link.level > 0) result.push_back(load.seconds);
    return result;
  };
  // Activations go one way, gradients the other, over a link of its own.
  const std::vector<double> none, all{64, 64}, half{32, 32};
  CHECK(seconds(two_stages({0, 1}, {2, 3}, Samples(4))) == none);
  CHECK(seconds(two_stages({0, 1, 2, 3}, {4, 5, 6, 7}, Samples(4))) == all);
  CHECK(seconds(two_stages({0, 1}, {4}, Samples(8))) == all);
  CHECK(seconds(two_stages({0, 4}, {1}, Samples(4))) == half);
  CHECK(seconds(two_stages({0, 4}, {1, 5}, Samples(4))) == none);
  // Halves of eight samples, made of halves of four: two of eight go either way, as do gradients of two.
  CHECK(seconds(two_stages({0, 4}, {1, 5}, Samples(8))) == half);
  CHECK(seconds(two_stages({0, 4}, {1, 5}, Samples(4), ir::ReplicaMode::kRoundRobin)) == none);
  CHECK(seconds(two_stages({0, 4}, {1}, Samples(4), ir::ReplicaMode::kRoundRobin)) == half);
}

TEST_CASE("sums of gradients of several stages over the link between two hosts take turns") {
  ir::PlanGraph graph = tests::chain_graph(4, {.seconds = 1, .bytes = 0, .weight_bytes = 100'000}, Samples(8));
  const ir::Cluster cluster = two_hosts();
  const auto step = [&](bool across_hosts) {
    ir::Assignment assignment;
    for (size_t stage = 0; stage < 4; ++stage) {
      assignment.stage_of.push_back(StageId(stage));
      const size_t other = across_hosts ? stage + 4 : stage ^ 1;
      assignment.choice.push_back({.devices = {DeviceId(stage), DeviceId(other)}, .micro_batch = Samples(2)});
    }
    return *build_stage_graph(graph, assignment);
  };
  const ir::StageGraph across = step(true);
  CHECK(shared_rings(across, cluster).size() == 2);  // one for each way
  CHECK(shared_rings(step(false), cluster).empty());
  // Two rounds of half of 100 kB a stage.
  const IterationTime time = iteration_time(across, cluster);
  CHECK(time.reduce == doctest::Approx(4 * 100).epsilon(1e-3));
  CHECK(time.total() > 400);
}

TEST_CASE("a step takes as long as the link between two hosts carries messages, and what is before and behind") {
  const ir::Cluster cluster = two_hosts();
  const IterationTime shared = iteration_time(two_stages({0, 1, 2, 3}, {4, 5, 6, 7}, Samples(4)), cluster);
  CHECK(shared.link_seconds == doctest::Approx(64));
  // A second of a forward, 4 of the first micro-batch on the link, 3 of its reader, and 2 of the last backward.
  CHECK(shared.total() == doctest::Approx(1 + 4 + 3 + 64 + 2).epsilon(1e-5));
  const IterationTime apart = iteration_time(two_stages({0, 1}, {2, 3}, Samples(4)), cluster);
  CHECK(apart.link_seconds == 0);
}
