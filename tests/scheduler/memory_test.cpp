// The memory of a plan against that of its schedule: one set of formulas, two ways to add them up.

#include "cost/memory.h"

#include <doctest/doctest.h>

#include "cost/in_flight.h"
#include "scheduler/build_schedule.h"
#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/memory/arena.h"
#include "scheduler/memory/memory.h"
#include "scheduler/policies/in_flight_rules.h"
#include "scheduler/policies/policies.h"
#include "tests/scheduler/helpers.h"
#include "tests/scheduler/random_stages.h"
#include "tests/scheduler/validated_memory.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::scheduler;
using tests::Dice;

namespace {

struct Case {
  StageGraph graph;
  ir::Cluster cluster;
};

enum class Shape : uint8_t { kEqual, kAny };

/// Every node a stage. kEqual: one replica and one micro-batch size; kAny: sizes that divide the batch, k, replicas,
/// recomputation, and two stages that may share a device.
std::optional<Case> random_case(uint64_t seed, Shape shape) {
  Dice dice(seed + 1000);
  const Samples batch(16);
  ir::PlanGraph plan = seed % 2 == 0 ? tests::random_sp_graph(seed, 2 + dice.below(6), batch)
                                     : tests::random_dag(seed, 2 + dice.below(6), 3, batch);
  for (ir::PlanNode& node : plan.nodes)
    node.workspace = ir::SampleFunction::polynomial(0, static_cast<double>(dice.below(20)));
  if (seed % 3 == 0) plan.execution = ir::Execution::kChain;
  for (ir::WeightGroup& weights : plan.weight_groups)
    weights.update_scratch = static_cast<int64_t>(seed % 5) * weights.bytes;
  plan.optimizer_state_per_weight_byte = static_cast<double>(dice.below(3));
  ir::Assignment assignment;
  size_t next = 0;
  const Samples size(int64_t{1} << dice.below(3));
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    ir::StageChoice choice{.micro_batch = size};
    if (shape == Shape::kAny) {
      choice.micro_batch = Samples(int64_t{1} << dice.below(4));
      choice.k = 1 << dice.below(2);
      choice.recompute = dice.below(4) == 0;
    }
    size_t replicas = shape == Shape::kAny && dice.below(3) == 0 ? 2 : 1;
    replicas = std::min(replicas, static_cast<size_t>(choice.micro_batch.count));
    for (; replicas > 0; --replicas) choice.devices.push_back(ir::DeviceId(next++));
    if (shape == Shape::kAny && i > 0 && dice.below(8) == 0) {
      next -= choice.devices.size();
      choice.devices = {ir::DeviceId(next - 1)};
    }
    assignment.stage_of.push_back(StageId(i));
    assignment.choice.push_back(choice);
  }
  auto built = build_stage_graph(plan, assignment);
  if (!built.ok()) return std::nullopt;
  return Case{std::move(*built), ir::equal_devices(static_cast<int>(next))};
}

/// The peaks of the schedule that runs with these numbers, per program; empty where there is none.
std::vector<DeviceMemory> scheduled(const Case& c, const Policy& policy, bool vertical_sync,
                                    const IdMap<StageId, Samples>& numbers, Schedule& schedule) {
  const PolicyRequest request{
      .graph = c.graph, .cluster = c.cluster, .in_flight = numbers, .choices = {.vertical_sync = vertical_sync}};
  auto compute = policy.order(request);
  if (!compute.ok()) return {};
  auto full = insert_transfers(c.graph, std::move(*compute));
  if (!full.ok()) return {};
  schedule = std::move(*full);
  return memory_of(c.graph, schedule, {.optimizer_state_per_weight_byte = c.graph.optimizer_state_per_weight_byte});
}

int count_too_small(Shape shape, uint64_t seeds, double& largest_ratio, std::string_view name = "kfkb",
                    bool vertical_sync = false) {
  const Policy& policy = *find_policy(name);
  int cases = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    auto c = random_case(seed, shape);
    if (!c) continue;
    CAPTURE(seed);
    c->graph.versions = versions_of(policy, vertical_sync);
    if (policy.asynchronous) c->graph = *ir::with_batches(std::move(c->graph), 2);
    const IdMap<StageId, Samples> numbers = in_flight_of({.graph = c->graph, .cluster = c->cluster});
    const auto planned = cost::peak_memory(c->graph, c->cluster, numbers);
    Schedule schedule;
    const std::vector<DeviceMemory> memory = scheduled(*c, policy, vertical_sync, numbers, schedule);
    if (memory.empty() && policy.asynchronous) continue;  // updates that the batch is too short for
    REQUIRE_FALSE(memory.empty());
    ++cases;
    for (size_t p = 0; p < memory.size(); ++p) {
      const ir::DeviceId device = schedule.programs[p].device;
      CAPTURE(device.index());
      CHECK(planned[device] >= memory[p].peak);
      largest_ratio = std::max(largest_ratio, static_cast<double>(planned[device].count) /
                                                  std::max(1.0, static_cast<double>(memory[p].peak.count)));
    }
  }
  return cases;
}

}  // namespace

TEST_CASE("a plan's memory is never below its schedule's peak: equal micro-batches") {
  double ratio = 1;
  CHECK(count_too_small(Shape::kEqual, 400, ratio) == 400);
  // Not far above either: the worst of these graphs, where messages are as large as the stash, has 2.7 times the peak.
  CHECK(ratio < 3);
}

TEST_CASE("a plan's memory is never below its schedule's peak: any sizes, k, replicas, recomputation, shared devices") {
  double ratio = 1;
  CHECK(count_too_small(Shape::kAny, 400, ratio) > 300);
  // Not far above either: the worst of these graphs, where messages are as large as the stash, has 2.7 times the peak.
  CHECK(ratio < 3);
}

TEST_CASE("a plan's memory is never below the peak of a schedule that keeps versions of the weights") {
  for (const auto& [policy, vertical_sync] :
       {std::pair("pipedream", false), std::pair("pipedream", true), std::pair("2bw", false)}) {
    CAPTURE(policy);
    CAPTURE(vertical_sync);
    double ratio = 1;
    CHECK(count_too_small(Shape::kEqual, 400, ratio, policy, vertical_sync) > 300);
    CHECK(ratio < 3);
  }
}

namespace {

/// One stage with these weights, four samples, each an item of its own, which replicas take in turn.
StageGraph one_stage(size_t replicas = 1, Bytes weights = Bytes(100)) {
  ir::PlanGraph plan;
  plan.batch = Samples(4);
  plan.weight_groups.push_back({.bytes = weights, .trainable = true});
  ir::PlanNode node;
  node.forward = node.input_gradient = node.weight_gradient = ir::SampleFunction::polynomial(0, 1);
  node.weights = {ir::WeightGroupId(0u)};
  plan.nodes.push_back(node);
  ir::Assignment assignment;
  assignment.stage_of.push_back(StageId(0));
  ir::StageChoice choice{.micro_batch = Samples(1)};
  for (size_t device = 0; device < replicas; ++device) choice.devices.emplace_back(device);
  if (replicas > 1) choice.mode = ir::ReplicaMode::kRoundRobin;
  assignment.choice.push_back(std::move(choice));
  return *build_stage_graph(plan, assignment);
}

/// Bytes over time of a policy, where the stage's code is counted to take these. So many of the gradients are rows of
/// tables that were not looked up.
DeviceMemory counted(const char* policy, Bytes other_rows = Bytes(0), size_t replicas = 1) {
  const ir::ItemMemory item{.forward = {Bytes(10), Bytes(4)},
                            .again = {},
                            .input_gradient = {Bytes(3), Bytes(-1)},
                            .weight_gradient = {Bytes(2), Bytes(-3)},
                            .backward = {Bytes(3), Bytes(-4)},
                            .first_weight_gradient = {Bytes(107) - other_rows, Bytes(-3)},
                            .first_backward = {Bytes(106) - other_rows, Bytes(-4)},
                            .weight_gradients = Bytes(100) - other_rows,
                            .other_rows = other_rows};
  BuildOptions options{.policy = policy};
  options.memory.item = [item](StageId, Samples, bool) { return item; };
  const auto built = build_schedule(one_stage(replicas), ir::equal_devices(static_cast<int>(replicas)), options);
  REQUIRE(built.ok());
  return built->memory.front();
}

Bytes held_at_end(const DeviceMemory& memory) {
  Bytes held = memory.fixed;
  for (const MemoryChange& change : memory.changes) held += change.before + change.after;
  return held;
}

}  // namespace

TEST_CASE("counted items: weight gradients count from the first that makes them") {
  const DeviceMemory memory = counted("kfkb");
  CHECK(memory.fixed == Bytes(100));
  // In the first backward: the weights, the 4 of its forward, and 106 at the height of its weight gradient. Later
  // forwards have their 10 beside weights and gradients.
  CHECK(memory.peak == Bytes(210));
  CHECK(held_at_end(memory) == Bytes(200));
}

TEST_CASE("counted items: the second item makes gradients of tables whole, which may have other rows") {
  // The first item and the rows that it looked up come to 150; the third forward has its 10 beside weights and whole
  // gradients.
  const DeviceMemory memory = counted("kfkb", Bytes(60));
  CHECK(memory.peak == Bytes(210));
  CHECK(held_at_end(memory) == Bytes(200));
}

TEST_CASE("counted items: an update's gradients are there until the next has stepped") {
  const DeviceMemory memory = counted("pipedream");
  CHECK(memory.peak == Bytes(310));
  CHECK(held_at_end(memory) == Bytes(200));
}

TEST_CASE("counted items: a reduction for an update of another replica's gradients makes a sum of all weights") {
  const DeviceMemory memory = counted("parameter-server", Bytes(0), 2);
  // When the fourth update is reduced, beside the weights and the bucket: the sums of all four, since only the first
  // has stepped, and its own stay until the second has.
  CHECK(memory.peak == Bytes(600));
  CHECK(held_at_end(memory) == Bytes(200));
}

namespace {

/// In pages, the arena of a policy over one_stage(), whose forward keeps one of three, whose backwards take one for a
/// moment, whose gradient of the weight has ten, and whose update takes `update`.
int64_t arena_pages(const char* policy, Bytes weights = Bytes(100), Bytes update = Bytes(0)) {
  constexpr size_t kStash = 0, kTemporary = 1, kSum = 2;
  const ir::MemoryEvent scratch{.bytes = Bytes(kPage)}, drop{kStash, Bytes(kPage), false};
  const ir::FunctionMemory forward{
      .events = {{kStash, Bytes(kPage)}, {kTemporary, Bytes(2 * kPage)}, {kTemporary, Bytes(2 * kPage), false}}};
  const ir::ItemMemory item{.forward = forward,
                            .backward = {.events = {scratch, drop}},
                            .first_backward = {.events = {{kSum, Bytes(10 * kPage)}, scratch, drop}, .sums = {kSum}}};
  StageGraph graph = one_stage(1, weights);
  graph.stages[StageId(0u)].update_scratch = update;
  const auto built = build_schedule(graph, ir::equal_devices(1), {.policy = policy});
  REQUIRE(built.ok());
  const std::vector<Bytes> arenas = arenas_of(graph, built->schedule, [item](StageId, Samples, bool) { return item; });
  REQUIRE(arenas.size() == 1);
  return arenas.front().count / kPage;
}

}  // namespace

TEST_CASE("an arena holds what lives at once: sums of gradients stay, the rest ends with its item") {
  // And a page of the runtime's own.
  CHECK(arena_pages("kfkb") == 10 + 1 + 2 + 1);
  CHECK(arena_pages("gpipe") == 4 * 1 + 10 + 1 + 1);
  // The update comes after all items, beside the gradient.
  CHECK(arena_pages("kfkb", Bytes(100), Bytes(3 * kPage)) == 10 + 1 + 2 + 1);
  CHECK(arena_pages("kfkb", Bytes(100), Bytes(20 * kPage)) == 10 + 20 + 1);
}

TEST_CASE("an arena holds the versions of weights that a step makes and drops, not those that it finds or leaves") {
  // Each micro-batch reads the weights of the update before the last, so that every version but the last is made while
  // the one before it is still read. The step drops 1 and 2 of 20 pages each, which are there at once; it finds 0, and
  // leaves 3, in whose memory the last update is made. Beside them: the gradients of two updates, what a micro-batch
  // has kept, what its backward takes, and a page of the runtime's own.
  CHECK(arena_pages("2bw", Bytes(20 * kPage)) == 2 * 20 + 2 * 10 + 1 + 1 + 1);
}

namespace {

/// Numbers that differ from one function, size and stage to the next.
ir::ItemMemory any_item(StageId stage, Samples samples, bool joins_backward) {
  const int64_t n = samples.count * (static_cast<int64_t>(stage.index()) + 1) + (joins_backward ? 1 : 0);
  return {.forward = {Bytes(10 * n), Bytes(4 * n)},
          .again = {Bytes(9 * n), Bytes(3 * n)},
          .input_gradient = {Bytes(5 * n), Bytes(-n)},
          .weight_gradient = {Bytes(2 * n), Bytes(-3 * n)},
          .backward = {Bytes(7 * n), Bytes(-4 * n)},
          .first_weight_gradient = {Bytes(n + 100), Bytes(-3 * n)},
          .first_backward = {Bytes(7 * n + 100), Bytes(-4 * n)},
          .weight_gradients = Bytes(90),
          .other_rows = Bytes(10)};
}

}  // namespace

TEST_CASE("the validator counts memory by itself and finds the same peaks: every policy") {
  for (const Policy& policy : all_policies()) {
    CAPTURE(policy.name);
    if (policy.forward_only) continue;
    StageGraph graph = tests::standalone_for(policy, 4, 8);
    for (ir::Stage& stage : graph.stages) {
      if (stage.has_backward) stage.weight_bytes = stage.trainable_weight_bytes = Bytes(100);
      stage.update_scratch = Bytes(170);
    }
    const auto built = build_schedule(graph, standalone_cluster(4), {.policy = std::string(policy.name)});
    REQUIRE(built.ok());
    CheckOptions options;
    options.synchronous = false;
    tests::check_that_validator_agrees(graph, built->schedule, options);
    options.memory.item = any_item;
    tests::check_that_validator_agrees(graph, built->schedule, options);
  }
}

TEST_CASE("the validator counts memory by itself and finds the same peaks: any stages, priced or counted") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    tests::StandaloneCase standalone = tests::random_stages(seed);
    for (ir::Stage& stage : standalone.graph.stages) {
      stage.choice.shard_optimizer_state = seed % 2 == 0;
      stage.kept_gradients = ir::SampleFunction::polynomial(0, 2);
      if (stage.has_backward) stage.weight_bytes = stage.trainable_weight_bytes = Bytes(100);
      stage.update_scratch = Bytes(seed % 4 == 0 ? 300 : 20);
    }
    for (ir::StageEdge& edge : standalone.graph.edges) {
      edge.stashed_above = edge.from.index() % 2 == 0;
      edge.stashed_below = edge.to.index() % 3 == 0;
    }
    for (const char* policy : {"kfkb", "gpipe", "zb-1p", "pipedream", "2bw"}) {
      CAPTURE(policy);
      const auto built = build_schedule(standalone.graph, standalone.cluster, {.policy = policy});
      if (!built.ok()) continue;
      CheckOptions options;
      options.synchronous = false;
      options.memory.optimizer_state_per_weight_byte = static_cast<double>(seed % 3);
      tests::check_that_validator_agrees(standalone.graph, built->schedule, options);
      options.memory.item = any_item;
      tests::check_that_validator_agrees(standalone.graph, built->schedule, options);
    }
  }
}
