// Nodes that work on the whole batch: every planner gives their stages the batch as their micro-batch and, unless
// replicas can exchange sums over it, one replica; and nothing is lost by it that exhaustive search finds.

#include "partitioner/batch_stages.h"

#include <doctest/doctest.h>

#include <utility>

#include "cost/lower_bound.h"
#include "ir/stage_graph.h"
#include "partitioner/check_plan.h"
#include "partitioner/planner.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;
using ir::PlanNodeId;
using ir::SampleScope;
using ir::StageId;

namespace {

ir::Cluster slow_links(int devices) {
  ir::Cluster cluster = ir::equal_devices(devices);
  cluster.levels = {{.group = devices, .latency = Seconds(0.125), .bandwidth = BytesPerSecond(4)}};
  return cluster;
}

/// By the words of docs/semantics.md, section 1.
bool keeps_the_rule(const ir::PlanGraph& graph, const ir::Assignment& plan) {
  for (const PlanNodeId node : graph.node_ids()) {
    const ir::StageChoice& choice = plan.choice[plan.stage_of[node]];
    const bool has_right_replicas =
        choice.devices.size() == 1 || (graph.nodes[node].sums_over_replicas && choice.mode == ir::ReplicaMode::kSplit &&
                                       std::ssize(choice.devices) <= graph.batch.count);
    const bool keeps = has_right_replicas && choice.micro_batch == graph.batch && choice.k == 1;
    if (graph.nodes[node].scope == SampleScope::kBatch && !keeps) return false;
  }
  return true;
}

/// Every other node that works on the whole batch only needs sums over it.
ir::PlanGraph with_sums(ir::PlanGraph graph) {
  bool sums = true;
  for (ir::PlanNode& node : graph.nodes) {
    if (node.scope != SampleScope::kBatch) continue;
    node.sums_over_replicas = std::exchange(sums, !sums);
    if (node.sums_over_replicas) node.exchange_seconds = 0.0625;
  }
  return graph;
}

}  // namespace

TEST_CASE("every planner gives the whole batch to the nodes that work on it") {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph alone = tests::with_batch_nodes(tests::random_dag(seed, 7, 3, Samples(8)), seed);
    const ir::PlanGraph graph = seed % 2 == 0 ? alone : with_sums(alone);
    const ir::Cluster cluster = slow_links(3);
    for (const PlannerEntry& planner : planners()) {
      if (planner.name == "manual") continue;
      CAPTURE(planner.name);
      for (const std::optional<Samples> size : {std::optional<Samples>(), std::optional(Samples(2))}) {
        const auto answer = plan(planner.name, {.graph = &graph, .cluster = &cluster, .micro_batch = size});
        REQUIRE(answer.ok());  // and checked by check_plan inside
        for (const PlanCandidate& candidate : answer->candidates) {
          CHECK(keeps_the_rule(graph, candidate.assignment));
          ir::Assignment assignment = candidate.assignment;
          CHECK(build_stage_graph(graph, assignment).ok());
          const IdMap<StageId, bool> whole = batch_stages(graph, candidate.assignment);
          for (const StageId stage : ids<StageId>(candidate.assignment.choice.size()))
            if (size && !whole[stage] && planner.name != "model-parallel")
              CHECK(candidate.assignment.choice[stage].micro_batch == *size);
        }
      }
    }
  }
}

TEST_CASE("no planner beats exhaustive search where nodes work on the whole batch, and the bound holds") {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph alone = tests::with_batch_nodes(tests::random_dag(seed, 6, 3, Samples(4)), seed);
    const ir::PlanGraph graph = seed % 2 == 0 ? alone : with_sums(alone);
    const ir::Cluster cluster = slow_links(3);
    const PlanRequest request{.graph = &graph, .cluster = &cluster};
    const auto all = plan("exhaustive", request);
    REQUIRE(all.ok());
    CHECK(all->bound <= all->objective * (1 + 1e-9));
    CHECK(cost::plan_bound(graph, cluster).step(graph.batch) <= all->candidates.front().step_seconds * (1 + 1e-9));
    for (const char* name : {"graphpipe", "sequential", "equal-split", "model-parallel"}) {
      CAPTURE(name);
      const auto answer = plan(name, request);
      REQUIRE(answer.ok());
      CHECK(all->objective <= answer->objective * (1 + 1e-9));
      CHECK(all->candidates.front().step_seconds <= answer->candidates.front().step_seconds * (1 + 1e-9));
    }
    // It may put a stage of the whole batch beside another, which exhaustive search does not.
    const auto best = plan("auto", request);
    REQUIRE(best.ok());
    CHECK(best->candidates.front().step_seconds <= all->candidates.front().step_seconds * (1 + 1e-9));
  }
}

TEST_CASE("towers in small micro-batches, the node that compares their samples in one of the whole batch") {
  ir::PlanGraph graph = tests::two_branches_graph(3, {.seconds = 1, .bytes = 1}, Samples(16));
  graph.nodes[PlanNodeId(6u)].scope = SampleScope::kBatch;
  const ir::Cluster cluster = slow_links(4);
  const auto replicated =
      plan("data-parallel", {.graph = &graph, .cluster = &cluster, .micro_batch = Samples(4), .limit_memory = false});
  REQUIRE(replicated.ok());
  const ir::Assignment& plan = replicated->candidates.front().assignment;
  REQUIRE(plan.choice.size() == 2);
  CHECK(plan.choice[StageId(0u)].devices.size() == 4);
  CHECK(plan.choice[StageId(0u)].micro_batch == Samples(4));
  CHECK(plan.choice[StageId(1u)].devices.size() == 1);
  CHECK(plan.choice[StageId(1u)].micro_batch == Samples(16));
  for (const PlanNodeId node : graph.node_ids())
    CHECK((plan.stage_of[node] == StageId(1u)) == (node == PlanNodeId(6u)));
}

TEST_CASE("a chain of nodes that need sums over the batch is spread over all devices, for the time of its exchanges") {
  ir::PlanGraph graph = tests::chain_graph(4, {.seconds = 1, .bytes = 1}, Samples(16));
  for (ir::PlanNode& node : graph.nodes) node.scope = SampleScope::kBatch;
  const ir::Cluster cluster = slow_links(4);
  const PlanRequest request{.graph = &graph, .cluster = &cluster, .limit_memory = false};
  const auto alone = plan("auto", request);
  REQUIRE(alone.ok());
  for (ir::PlanNode& node : graph.nodes) node.sums_over_replicas = true;
  for (const char* name : {"data-parallel", "graphpipe", "auto"}) {
    CAPTURE(name);
    for (ir::PlanNode& node : graph.nodes) node.exchange_seconds = 0;
    const auto free = plan(name, request);
    REQUIRE(free.ok());
    CHECK(cost::plan_bound(graph, cluster).step(graph.batch) <= free->candidates.front().step_seconds * (1 + 1e-9));
    const ir::Assignment& spread = free->candidates.front().assignment;
    REQUIRE(spread.choice.size() == 1);
    CHECK(spread.choice[StageId(0u)].devices.size() == 4);
    CHECK(free->candidates.front().step_seconds < 0.3 * alone->candidates.front().step_seconds);
    // Two passes of four nodes, and two rounds until each of four replicas knows the sums of all.
    for (ir::PlanNode& node : graph.nodes) node.exchange_seconds = 0.25;
    const auto costly = plan("data-parallel", request);
    REQUIRE(costly.ok());
    if (name == std::string_view("data-parallel"))
      CHECK(costly->candidates.front().step_seconds - free->candidates.front().step_seconds ==
            doctest::Approx(2 * 4 * 2 * 0.25));
  }
}

TEST_CASE("data parallelism keeps a colocated loss together where one branch into it works on the whole batch") {
  // A batch norm in one of two branches; what adds the branches' losses up stays together.
  ir::PlanGraph graph = tests::two_branches_graph(3, {.seconds = 1, .bytes = 1}, Samples(16));
  graph.nodes[PlanNodeId(1u)].scope = SampleScope::kBatch;
  graph.colocated = {{PlanNodeId(2u), PlanNodeId(5u), PlanNodeId(6u)}};
  const ir::Cluster cluster = slow_links(4);
  const auto replicated =
      plan("data-parallel", {.graph = &graph, .cluster = &cluster, .micro_batch = Samples(4), .limit_memory = false});
  for (const Diagnostic& problem : replicated.problems()) MESSAGE(to_line(problem));
  REQUIRE(replicated.ok());
  const ir::Assignment& plan = replicated->candidates.front().assignment;
  CHECK(keeps_the_rule(graph, plan));
  for (const PlanNodeId node : graph.colocated.front()) CHECK(plan.stage_of[node] == plan.stage_of[PlanNodeId(1u)]);
  CHECK(batch_nodes_and_below(graph) ==
        std::vector<PlanNodeId>{PlanNodeId(1u), PlanNodeId(2u), PlanNodeId(5u), PlanNodeId(6u)});
}

TEST_CASE("replicas that no planner may give to a node are refused by its name") {
  ir::PlanGraph graph = tests::chain_graph(2, {}, Samples(8));
  graph.nodes[PlanNodeId(1u)].scope = SampleScope::kBatch;
  graph.nodes[PlanNodeId(1u)].fewest_samples = 2;
  const ir::Cluster cluster = slow_links(3);
  const auto answer = plan("graphpipe", {.graph = &graph,
                                         .cluster = &cluster,
                                         .stages = 2,
                                         .replicas = {{.stage = 1, .replicas = 2}},
                                         .limit_memory = false});
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.problems().front().code == Code::kNoFeasiblePlan);
  CHECK(answer.problems().front().origin == ModelText("node1"));
  CHECK(answer.problems().front().hint == "give the stage one device");
}

TEST_CASE("a stage of the whole batch may share a device; two others may not") {
  ir::PlanGraph graph = tests::chain_graph(3, {}, Samples(4));
  graph.nodes[PlanNodeId(2u)].scope = SampleScope::kBatch;
  ir::Assignment plan;
  plan.stage_of = IdMap<PlanNodeId, StageId>(3);
  for (size_t i = 0; i < 3; ++i) {
    plan.stage_of[PlanNodeId(i)] = StageId(i);
    plan.choice.push_back({.devices = {ir::DeviceId(i % 2)}, .micro_batch = Samples(i == 2 ? 4 : 1)});
  }
  const ir::Cluster cluster = slow_links(3);
  const CheckOptions options{.objective = std::numeric_limits<double>::quiet_NaN()};
  CHECK(check_plan(graph, cluster, plan, options).empty());
  ir::Assignment shared = plan;
  shared.choice[StageId(1u)].devices = shared.choice[StageId(0u)].devices;
  CHECK_FALSE(check_plan(graph, cluster, shared, options).empty());
}

TEST_CASE("plans that break the scope of a node are refused, by name and with what to do") {
  ir::PlanGraph graph = tests::chain_graph(2, {}, Samples(8));
  graph.nodes[PlanNodeId(1u)].scope = SampleScope::kBatch;
  graph.nodes[PlanNodeId(1u)].fewest_samples = 2;
  const ir::Cluster cluster = slow_links(3);
  ir::Assignment sound;
  sound.stage_of = IdMap<PlanNodeId, StageId>(2);
  for (size_t i = 0; i < 2; ++i) {
    sound.stage_of[PlanNodeId(i)] = StageId(i);
    sound.choice.push_back({.devices = {ir::DeviceId(i)}, .micro_batch = Samples(i == 0 ? 2 : 8)});
  }
  const auto problems = [&](ir::Assignment plan) {
    const Diagnostics found = check_plan(graph, cluster, plan, {.objective = std::numeric_limits<double>::quiet_NaN()});
    CHECK(build_stage_graph(graph, plan).ok() == found.empty());  // two that share nothing agree
    return found;
  };
  CHECK(problems(sound).empty());
  ir::Assignment divided = sound;
  divided.choice[StageId(1u)].micro_batch = Samples(4);
  REQUIRE(problems(divided).size() == 1);
  CHECK(problems(divided).front().origin == ModelText("node1"));
  CHECK(problems(divided).front().hint.find("--contrastive micro-batch") != std::string::npos);
  ir::Assignment replicated = sound;
  replicated.choice[StageId(1u)].devices.push_back(ir::DeviceId(2u));
  CHECK_FALSE(problems(replicated).empty());
  // Where replicas exchange sums they may be several, if they split the batch and each has a sample of it.
  graph.nodes[PlanNodeId(1u)].sums_over_replicas = true;
  CHECK(problems(replicated).empty());
  ir::Assignment in_turn = replicated;
  in_turn.choice[StageId(1u)].mode = ir::ReplicaMode::kRoundRobin;
  CHECK_FALSE(problems(in_turn).empty());
  graph.nodes[PlanNodeId(1u)].scope = SampleScope::kMicroBatch;
  graph.nodes[PlanNodeId(1u)].fewest_samples = 1;
  for (const int64_t size : {1, 2, 4, 7}) {
    CAPTURE(size);
    ir::Assignment small = replicated;
    small.choice[StageId(1u)].micro_batch = Samples(size);
    CHECK(problems(small).empty() == (size == 2 || size == 4));
  }
  graph.nodes[PlanNodeId(1u)].sums_over_replicas = false;
  graph.nodes[PlanNodeId(1u)].fewest_samples = 2;
  // Of one micro-batch: any size with two samples in each, the last included.
  graph.nodes[PlanNodeId(1u)].scope = SampleScope::kMicroBatch;
  for (const int64_t size : {1, 2, 3, 4, 5, 7, 8}) {
    CAPTURE(size);
    divided.choice[StageId(1u)].micro_batch = Samples(size);
    CHECK(problems(divided).empty() == (size != 1 && size != 7));
  }
  for (const int64_t size : {1, 7}) {
    const auto refused = plan("graphpipe", {.graph = &graph, .cluster = &cluster, .micro_batch = Samples(size)});
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.problems().front().code == Code::kBadPlan);
    CHECK(refused.problems().front().origin == ModelText("node1"));
  }
}
