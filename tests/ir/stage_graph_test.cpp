#include "ir/stage_graph.h"

#include <doctest/doctest.h>

#include <map>
#include <optional>

#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::ir;
using tests::chain_graph;
using tests::plan_graph;

namespace {

Assignment assign(std::vector<size_t> stage_of, size_t stages, Samples micro_batch = Samples(2)) {
  Assignment assignment;
  for (size_t stage : stage_of) assignment.stage_of.push_back(StageId(stage));
  for (size_t i = 0; i < stages; ++i)
    assignment.choice.push_back({.devices = {DeviceId(i)}, .micro_batch = micro_batch});
  return assignment;
}

bool refused(const PlanGraph& graph, Assignment assignment) {
  const auto result = build_stage_graph(graph, assignment);
  return !result.ok() && result.problems().front().code == Code::kBadPlan;
}

}  // namespace

TEST_CASE("stages get topological ids, and the assignment is renumbered with them") {
  const PlanGraph graph = chain_graph(4);
  Assignment assignment = assign({1, 1, 0, 0}, 2);
  const auto result = build_stage_graph(graph, assignment);
  REQUIRE(result.ok());
  CHECK(assignment.stage_of[PlanNodeId(0u)] == StageId(0u));
  CHECK(assignment.choice[StageId(0u)].devices.front() == DeviceId(1u));
  CHECK(result->stages[StageId(1u)].nodes == std::vector{PlanNodeId(2u), PlanNodeId(3u)});
  CHECK(result->edges.size() == 1);
  CHECK(result->edges[EdgeId(0u)].value == PlanValueId(1u));
  CHECK(result->successors(StageId(0u)) == std::vector{StageId(1u)});
  CHECK(result->predecessors(StageId(0u)).empty());
}

TEST_CASE("every edge goes from a lower to a higher stage on random graphs") {
  std::mt19937 random(3);
  int built = 0;
  for (int round = 0; round < 300; ++round) {
    const size_t nodes = 2 + random() % 8, stages = 1 + random() % 4;
    std::vector<std::vector<size_t>> predecessors(nodes);
    for (size_t i = 1; i < nodes; ++i)
      for (size_t p = 0; p < i; ++p)
        if (random() % 3 == 0) predecessors[i].push_back(p);
    std::vector<size_t> stage_of(nodes);
    for (size_t& stage : stage_of) stage = random() % stages;
    const PlanGraph graph = plan_graph(predecessors, {{}}, Samples(8));
    Assignment assignment = assign(stage_of, stages);
    const auto result = build_stage_graph(graph, assignment);
    if (!result.ok()) continue;
    ++built;
    for (const StageEdge& edge : result->edges) CHECK(edge.from < edge.to);
    size_t placed = 0;
    for (const Stage& stage : result->stages) placed += stage.nodes.size();
    CHECK(placed == nodes);
  }
  CHECK(built > 20);
}

namespace {

/// Random stages of a random graph; empty where they depend on each other.
std::optional<std::pair<StageGraph, StageGraph>> both_ways(uint64_t seed, PlanGraph& graph, Assignment& assignment) {
  tests::Dice dice(seed);
  graph = tests::random_dag(seed, 2 + dice.below(8), 3, Samples(8));
  const size_t stages = 1 + dice.below(5);
  std::vector<size_t> stage_of;
  for (size_t i = 0; i < graph.nodes.size(); ++i) stage_of.push_back(i * stages / graph.nodes.size());
  if (dice.below(2) == 0) std::swap(stage_of.front(), stage_of.back());
  assignment = assign(stage_of, stages);
  const auto straight = build_stage_graph(graph, assignment);
  graph.execution = Execution::kChain;
  const auto chain = build_stage_graph(graph, assignment);
  CHECK(straight.ok() == chain.ok());
  if (!chain.ok()) return std::nullopt;
  return std::pair(*straight, *chain);
}

}  // namespace

TEST_CASE("the edges of a chain join neighbours, and carry what the stages above have for those below, and back") {
  int built = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    PlanGraph graph;
    Assignment assignment;
    const auto both = both_ways(seed, graph, assignment);
    if (!both) continue;
    const auto& [straight, chain] = *both;
    ++built;
    std::map<std::pair<size_t, PlanValueId>, std::pair<int, int>> expected;  // gradients, those passed on
    for (const StageEdge& edge : straight.edges)
      for (size_t at = edge.from.index(); at < edge.to.index(); ++at) {
        auto& [all, passed] = expected[{at, edge.value}];
        all += edge.gradient_count;
        passed += at + 1 < edge.to.index() ? edge.gradient_count : 0;
      }
    CHECK(chain.edges.size() == expected.size());
    for (const StageEdge& edge : chain.edges) {
      CHECK(edge.to.index() == edge.from.index() + 1);
      REQUIRE(expected.contains({edge.from.index(), edge.value}));
      const auto [all, passed] = expected.at({edge.from.index(), edge.value});
      CHECK(edge.gradient_count == all);
      CHECK(edge.passed_gradients == passed);
      CHECK(edge.passed_on == (assignment.stage_of[graph.values[edge.value].producer] != edge.from));
      CHECK(edge.gradient_bytes.at(2.0) == all * graph.values[edge.value].gradient_bytes.at(2.0));
    }
    // Nothing but the edges differs.
    CHECK(straight.shared == chain.shared);
    for (const StageId stage : chain.stage_ids())
      CHECK(straight.stages[stage].stash_to_input_gradient == chain.stages[stage].stash_to_input_gradient);
  }
  CHECK(built > 100);
}

TEST_CASE("a frozen stage of a chain has a backward where gradients pass through it") {
  PlanGraph graph = plan_graph({{}, {}, {0, 1}}, {{}}, Samples(8));
  PlanNode& frozen = graph.nodes[PlanNodeId(1u)];
  frozen.has_backward = false;
  graph.values[PlanValueId(1u)].gradient_readers.clear();
  graph.values[PlanValueId(1u)].gradient_bytes = {};
  Assignment assignment = assign({0, 1, 2}, 3);
  CHECK_FALSE(build_stage_graph(graph, assignment)->stages[StageId(1u)].has_backward);
  graph.execution = Execution::kChain;
  const auto chain = build_stage_graph(graph, assignment);
  CHECK(chain->stages[StageId(1u)].has_backward);
  CHECK(chain->predecessors(StageId(2u)) == std::vector{StageId(1u)});
}

TEST_CASE("what cannot be a plan is refused") {
  const PlanGraph graph = chain_graph(3);
  CHECK(refused(graph, assign({0, 1, 0}, 2)));  // a cycle: stage 0 is not convex
  CHECK(refused(graph, assign({0, 0, 0}, 2)));  // an empty stage
  CHECK(refused(graph, assign({0, 0, 7}, 1)));  // no such stage
  CHECK(refused(graph, assign({0, 0}, 1)));     // a node is missing
  CHECK(refused(graph, assign({0, 0, 0}, 1, Samples(9))));
  CHECK(refused(graph, assign({0, 0, 0}, 1, Samples(0))));
  Assignment twice = assign({0, 0, 0}, 1);
  twice.choice[StageId(0u)].devices = {DeviceId(0u), DeviceId(0u)};
  CHECK(refused(graph, twice));
  Assignment none = assign({0, 0, 0}, 1);
  none.choice[StageId(0u)].devices.clear();
  CHECK(refused(graph, none));
}

TEST_CASE("nodes that must share a stage do") {
  PlanGraph graph = chain_graph(3);
  graph.colocated = {{PlanNodeId(0u), PlanNodeId(1u)}};
  CHECK(refused(graph, assign({0, 1, 1}, 2)));
  CHECK_FALSE(refused(graph, assign({0, 0, 1}, 2)));
}

TEST_CASE("what mixes samples has one replica unless it needs only sums, and its edges join equal micro-batches") {
  PlanGraph graph = chain_graph(2);
  graph.nodes[PlanNodeId(1u)].scope = SampleScope::kMicroBatch;
  Assignment replicated = assign({0, 0}, 1);
  replicated.choice[StageId(0u)].devices = {DeviceId(0u), DeviceId(1u)};
  CHECK(refused(graph, replicated));
  graph.nodes[PlanNodeId(1u)].sums_over_replicas = true;
  graph.nodes[PlanNodeId(1u)].exchange_seconds = 0.5;
  const auto split = build_stage_graph(graph, replicated);
  REQUIRE(split.ok());
  const Stage& stage = split->stages[StageId(0u)];
  CHECK(stage.exchanges_sums);
  CHECK(stage.forward.at(1.0) ==
        graph.nodes[PlanNodeId(0u)].forward.at(1.0) + graph.nodes[PlanNodeId(1u)].forward.at(1.0) + 0.5);
  replicated.choice[StageId(0u)].mode = ReplicaMode::kRoundRobin;
  CHECK(refused(graph, replicated));
  graph.values[PlanValueId(0u)].batch = BatchKind::kMixed;
  CHECK_FALSE(refused(graph, assign({0, 1}, 2)));
  Assignment unequal = assign({0, 1}, 2);
  unequal.choice[StageId(1u)].micro_batch = Samples(4);
  CHECK(refused(graph, unequal));
}

TEST_CASE("a saved value counts once per stage that saves it, wherever it was made") {
  PlanGraph graph = chain_graph(3, {.seconds = 1, .bytes = 10});
  for (PlanValue& value : graph.values) value.saved_by_input_gradient.clear();
  PlanValue& first = graph.values[PlanValueId(0u)];
  first.readers = first.gradient_readers = {PlanNodeId(1u), PlanNodeId(2u)};
  first.saved_by_input_gradient = {PlanNodeId(1u), PlanNodeId(2u)};
  first.saved_by_weight_gradient = {PlanNodeId(2u)};
  Assignment together = assign({0, 1, 1}, 2), apart = assign({0, 1, 2}, 3);
  const auto one = build_stage_graph(graph, together);
  CHECK(one->stages[StageId(0u)].stash_to_input_gradient.at(1.0) == 0);
  CHECK(one->stages[StageId(1u)].stash_to_input_gradient.at(1.0) == 10);
  CHECK(one->stages[StageId(1u)].stash_to_weight_gradient.at(1.0) == 10);
  const auto two = build_stage_graph(graph, apart);
  CHECK(two->stages[StageId(1u)].stash_to_input_gradient.at(1.0) == 10);
  CHECK(two->stages[StageId(1u)].stash_to_weight_gradient.at(1.0) == 0);
  CHECK(two->stages[StageId(2u)].stash_to_weight_gradient.at(1.0) == 10);
}

TEST_CASE("weights are held once per stage, and shared where uses fall into several") {
  PlanGraph graph = chain_graph(3);
  const WeightGroupId tied = graph.weight_groups.push_back({.bytes = Bytes(100), .trainable = true, .name = {}});
  const WeightGroupId frozen = graph.weight_groups.push_back({.bytes = Bytes(7), .trainable = false, .name = {}});
  graph.nodes[PlanNodeId(0u)].weights = {tied, frozen};
  graph.nodes[PlanNodeId(1u)].weights = {tied};
  graph.nodes[PlanNodeId(2u)].weights = {tied};
  Assignment assignment = assign({0, 0, 1}, 2);
  const auto result = build_stage_graph(graph, assignment);
  CHECK(result->stages[StageId(0u)].weight_bytes == Bytes(107));
  CHECK(result->stages[StageId(0u)].trainable_weight_bytes == Bytes(100));
  REQUIRE(result->shared.size() == 1);
  CHECK(result->shared.front().group == tied);
  CHECK(result->shared.front().stages.size() == 2);
}

TEST_CASE("a stage that holds a copy of weights that another trains takes part in their step") {
  PlanGraph graph = chain_graph(4);
  const auto group = [&](bool trainable) {
    return graph.weight_groups.push_back({.bytes = Bytes(100), .trainable = trainable, .name = {}});
  };
  const WeightGroupId tied = group(true), further = group(true), frozen = group(false);
  graph.nodes[PlanNodeId(0u)].weights = {frozen};
  graph.nodes[PlanNodeId(1u)].weights = {further};
  graph.nodes[PlanNodeId(2u)].weights = {further, tied};
  graph.nodes[PlanNodeId(3u)].weights = {tied, frozen};
  for (const size_t node : {0, 1, 2}) graph.nodes[PlanNodeId(node)].has_backward = false;
  Assignment assignment = assign({0, 1, 2, 3}, 4);
  const auto result = build_stage_graph(graph, assignment);
  REQUIRE(result.ok());
  CHECK_FALSE(result->stages[StageId(0u)].has_backward);
  for (const size_t stage : {1, 2, 3}) CHECK(result->stages[StageId(stage)].is_trained());
}

TEST_CASE("a value with readers in two stages makes two edges; sums over readers stay where all operands are") {
  PlanGraph graph = plan_graph({{}, {0}, {0}, {0}}, {{.seconds = 1, .bytes = 4}}, Samples(8));
  Assignment last_two = assign({0, 0, 1, 1}, 2);
  auto result = build_stage_graph(graph, last_two);
  REQUIRE(result->edges.size() == 1);
  CHECK(result->edges[EdgeId(0u)].gradient_count == 1);
  // Reader 3 is in the producer's stage, so the sums start there and readers 1 and 2 cross on their own.
  Assignment first_two = assign({0, 1, 1, 0}, 2);
  result = build_stage_graph(graph, first_two);
  CHECK(result->edges[EdgeId(0u)].gradient_count == 2);
  CHECK(result->edges[EdgeId(0u)].gradient_bytes.at(2.0) == 16);
  CHECK(result->edges[EdgeId(0u)].bytes.at(2.0) == 8);
  Assignment apart = assign({0, 1, 2, 2}, 3);
  CHECK(build_stage_graph(graph, apart)->edges.size() == 2);
}

TEST_CASE("the items of a stage cover each sample once, under both replica modes") {
  const PlanGraph graph = chain_graph(1, {}, Samples(11));
  for (ReplicaMode mode : {ReplicaMode::kSplit, ReplicaMode::kRoundRobin})
    for (int replicas = 1; replicas <= 5; ++replicas)
      for (int64_t size = 1; size <= 11; ++size) {
        Assignment assignment = assign({0}, 1, Samples(size));
        StageChoice& choice = assignment.choice[StageId(0u)];
        choice.mode = mode;
        for (int r = 1; r < replicas; ++r) choice.devices.push_back(DeviceId(static_cast<size_t>(r)));
        const auto stages = build_stage_graph(graph, assignment);
        REQUIRE(stages.ok());
        std::vector<int> seen(11, 0);
        for (int64_t m = 0; m < micro_batch_count(*stages, StageId(0u)); ++m)
          for (int r = 0; r < replicas; ++r) {
            const SampleRange range = item_range(*stages, StageId(0u), m, r);
            for (int64_t s = range.first; s < range.last; ++s) ++seen[static_cast<size_t>(s)];
          }
        CHECK(seen == std::vector<int>(11, 1));
      }
}
