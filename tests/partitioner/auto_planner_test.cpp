#include <doctest/doctest.h>

#include <algorithm>
#include <span>

#include "cost/in_flight.h"
#include "cost/iteration_time.h"
#include "partitioner/auto/planner.h"
#include "partitioner/check_plan.h"
#include "partitioner/graphpipe/search_space.h"
#include "partitioner/improve/plan_hill_climb.h"
#include "tests/support/case_count.h"
#include "tests/support/paper_models.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;
using ir::PlanNodeId;
using ir::StageId;

namespace {

ir::Cluster tight_cluster(int devices, int64_t memory) {
  ir::Cluster cluster = ir::equal_devices(devices);
  for (ir::Device& device : cluster.devices) device.memory = Bytes(memory);
  cluster.levels = {{.group = devices, .latency = Seconds(0.125), .bandwidth = BytesPerSecond(400)}};
  return cluster;
}

double step_of(const ir::PlanGraph& graph, const ir::Cluster& cluster, ir::Assignment assignment) {
  const auto stages = build_stage_graph(graph, assignment);
  REQUIRE(stages.ok());
  const cost::IterationTime time = cost::iteration_time(*stages, cluster);
  return time.fits ? time.total() : std::numeric_limits<double>::infinity();
}

}  // namespace

TEST_CASE("auto is never worse than any planner of the list, on graphs of every kind") {
  for (uint64_t seed = 0; seed < tests::case_count(6, 12); ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph = seed % 2 == 0 ? tests::random_dag(seed, 5 + 3 * seed / 2, 3, Samples(12))
                                              : tests::random_sp_graph(seed, 5 + 3 * seed / 2, Samples(12));
    const ir::Cluster cluster = tight_cluster(3 + static_cast<int>(seed % 3), 3000);
    const PlanRequest request{.graph = &graph, .cluster = &cluster};
    const auto best = plan("auto", request);
    REQUIRE(best.ok());
    for (const PlannerEntry& row : planners()) {
      if (row.name == "manual" || (row.name == "exhaustive" && graph.nodes.size() > 6)) continue;
      const auto other = plan(row.name, request);
      if (other.ok()) CHECK(best->candidates.front().step_seconds <= other->candidates.front().step_seconds);
    }
  }
}

TEST_CASE("forced replicas are part of the search: the cut suits them") {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    std::vector<tests::NodePrice> prices(8);
    std::vector<std::vector<size_t>> producers(8);
    for (size_t i = 0; i < 8; ++i) {
      prices[i] = {.seconds = static_cast<double>(1 + dice.below(9)), .bytes = 10, .weight_bytes = 10};
      if (i > 0) producers[i] = {i - 1};
    }
    const ir::PlanGraph graph = tests::plan_graph(producers, prices, Samples(16));
    const ir::Cluster cluster = tight_cluster(4, 1'000'000);
    double best = std::numeric_limits<double>::infinity();
    for (size_t cut = 1; cut < 8; ++cut)
      for (int64_t size = 1; size <= 16; size *= 2) {
        ir::Assignment assignment;
        for (size_t i = 0; i < 8; ++i) assignment.stage_of.push_back(StageId(i < cut ? 0u : 1u));
        assignment.choice.push_back({.devices = {ir::DeviceId(0u)}, .micro_batch = Samples(size)});
        assignment.choice.push_back(
            {.devices = {ir::DeviceId(1u), ir::DeviceId(2u), ir::DeviceId(3u)}, .micro_batch = Samples(size)});
        best = std::min(best, step_of(graph, cluster, assignment));
      }
    const auto forced = plan("auto", {.graph = &graph, .cluster = &cluster, .stages = 2, .replicas = {{1, 3}}});
    REQUIRE(forced.ok());
    CHECK(forced->candidates.front().step_seconds <= best * (1 + 1e-9));
    CHECK(forced->candidates.front().assignment.choice[StageId(0u)].devices.size() == 1);
    CHECK(forced->candidates.front().assignment.choice[StageId(1u)].devices.size() == 3);
  }
}

TEST_CASE("where messages cost more than work, auto leaves devices idle") {
  const ir::PlanGraph graph =
      tests::chain_graph(20, {.seconds = 0.001, .bytes = 1000, .weight_bytes = 1000}, Samples(8));
  const auto best_on = [&](int devices) {
    const ir::Cluster cluster = tight_cluster(devices, 10'000'000);
    const auto answer = plan("auto", {.graph = &graph, .cluster = &cluster});
    REQUIRE(answer.ok());
    CHECK(answer->bound <= answer->objective);
    return answer->candidates.front();
  };
  const PlanCandidate one = best_on(1), eight = best_on(8);
  CHECK(eight.step_seconds <= one.step_seconds);
  CHECK(eight.assignment.choice.size() == 1);
}

TEST_CASE("a step that is known cuts a search short, and never cuts off what is shorter") {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph =
        seed % 2 == 0 ? tests::random_dag(seed, 14, 3, Samples(12)) : tests::random_sp_graph(seed, 14, Samples(12));
    const ir::Cluster cluster = tight_cluster(4, 100000);
    for (const std::optional<int> stages : {std::optional<int>(), std::optional<int>(3)})
      for (const char* planner : {"graphpipe", "sequential"}) {
        PlanRequest request{.graph = &graph, .cluster = &cluster};
        request.stages = stages;
        const auto best = plan(planner, request);
        if (!best.ok()) continue;
        request.known_step = 1.01 * best->candidates.front().step_seconds;
        const auto again = plan(planner, request);
        REQUIRE(again.ok());
        CHECK(again->candidates.front().step_seconds == best->candidates.front().step_seconds);
      }
  }
}

TEST_CASE("two threads find the plan of one") {
  for (uint64_t seed = 0; seed < tests::case_count(2, 6); ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph = tests::random_dag(seed, 20, 3, Samples(16));
    const ir::Cluster cluster = tight_cluster(5, 100000);
    const auto one = plan("auto", {.graph = &graph, .cluster = &cluster, .threads = 1});
    const auto two = plan("auto", {.graph = &graph, .cluster = &cluster, .threads = 2});
    REQUIRE(one.ok());
    REQUIRE(two.ok());
    REQUIRE(one->candidates.size() == two->candidates.size());
    for (size_t i = 0; i < one->candidates.size(); ++i) {
      CHECK(one->candidates[i].assignment == two->candidates[i].assignment);
      CHECK(one->candidates[i].step_seconds == two->candidates[i].step_seconds);
    }
  }
}

TEST_CASE("the local search keeps plans sound, never makes them worse, and often better") {
  int better = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph = tests::random_dag(seed, 12, 3, Samples(12));
    const ir::Cluster cluster = tight_cluster(4, 5000);
    const auto start = plan("equal-split", {.graph = &graph, .cluster = &cluster});
    if (!start.ok()) continue;
    Deadline deadline(1e9, nullptr);
    const PlanRequest request{.graph = &graph, .cluster = &cluster};
    const ir::Assignment& before = start->candidates.front().assignment;
    const ir::Assignment after = hill_climb(request, before, 400, deadline);
    CHECK(check_plan(graph, cluster, after,
                     {.one_stage_per_device = false, .objective = std::numeric_limits<double>::quiet_NaN()})
              .empty());
    const double was = step_of(graph, cluster, before), is = step_of(graph, cluster, after);
    CHECK(is <= was);
    better += is < 0.99 * was;
  }
  CHECK(better > 8);
}

TEST_CASE("the local search goes by the yardstick of the request where there is one") {
  int better = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    const ir::PlanGraph graph = tests::random_dag(seed, 40, 3, Samples(12));
    const ir::Cluster cluster = tight_cluster(4, 100'000);
    const auto start = plan("equal-split", {.graph = &graph, .cluster = &cluster});
    REQUIRE(start.ok());
    Deadline deadline(1e9, nullptr);
    PlanRequest request{.graph = &graph, .cluster = &cluster};
    const ir::Assignment before = hill_climb(request, start->candidates.front().assignment, 400, deadline);
    // What is best by the closed form is not what is best here.
    request.evaluate = [&](const ir::Assignment& assignment) {
      return step_of(graph, cluster, assignment) * (assignment.stage_of == before.stage_of ? 1.2 : 1.1);
    };
    const ir::Assignment after = hill_climb(request, before, 400, deadline);
    CHECK(check_plan(graph, cluster, after,
                     {.one_stage_per_device = false, .objective = std::numeric_limits<double>::quiet_NaN()})
              .empty());
    CHECK(request.evaluate(after) <= request.evaluate(before));
    better += request.evaluate(after) < request.evaluate(before);
  }
  CHECK(better > 4);
}

TEST_CASE("where memory is short, stages recompute instead of keeping few samples in flight") {
  // Weights fit easily. Without recomputation a device holds the activations of its stage for few samples only, and the
  // pipeline runs half empty.
  const ir::PlanGraph graph = tests::chain_graph(64, {.seconds = 1, .bytes = 1000, .weight_bytes = 10}, Samples(8));
  const ir::Cluster cluster = tight_cluster(4, 30'000);
  const auto without = plan("graphpipe", {.graph = &graph, .cluster = &cluster});
  const auto with = plan("auto", {.graph = &graph, .cluster = &cluster});
  REQUIRE(without.ok());
  REQUIRE(with.ok());
  const auto& choice = with->candidates.front().assignment.choice;
  CHECK(std::any_of(choice.begin(), choice.end(), [](const ir::StageChoice& stage) { return stage.recompute; }));
  CHECK(with->candidates.front().step_seconds < 0.6 * without->candidates.front().step_seconds);
  CHECK(step_of(graph, cluster, with->candidates.front().assignment) < std::numeric_limits<double>::infinity());
}

TEST_CASE("a time limit ends auto early with a plan, and says so") {
  const ir::PlanGraph graph = tests::mmt(256, 4, 8);
  const ir::Cluster cluster = tests::summit(16);
  PlanRequest request{.graph = &graph, .cluster = &cluster};
  request.time_limit = 0.02;
  const auto answer = plan("auto", request);
  REQUIRE(answer.ok());
  CHECK_FALSE(answer->complete);
  CHECK(answer->bound <= answer->objective);
}

TEST_CASE("equal branches have equal shapes, different ones do not") {
  const auto shapes = [](double last_seconds) {
    std::vector<tests::NodePrice> prices(8, {.seconds = 1});
    prices[6].seconds = last_seconds;
    const ir::PlanGraph graph = tests::plan_graph({{}, {0}, {1}, {0}, {3}, {0}, {5}, {2, 4, 6}}, prices, Samples(8));
    const NodeGroups items = group_nodes(graph);
    SearchSpace space = space_of_tree(*decompose(items.graph), items, 0);
    find_shapes(graph, space);
    std::vector<int> found;
    for (int branch : space.chains.back().elements[1].branches)
      found.push_back(space.chains[static_cast<size_t>(branch)].shape);
    return found;
  };
  CHECK(shapes(1) == std::vector{0, 0, 0});
  CHECK(shapes(2) == std::vector{0, 0, 2});
}

TEST_CASE("lanes put the lightest branches behind each other and keep every item") {
  const auto tree = decompose(tests::dag_of({{1, 2, 3, 4}, {5}, {5}, {5}, {5}, {}}));
  REQUIRE(tree);
  CHECK(widest(*tree) == 4);
  CHECK(in_lanes(*tree, 4, {1, 1, 1, 1, 1, 1}) == *tree);
  CHECK(in_lanes(*tree, 2, {1, 5, 1, 1, 1, 1}).str() == "(0;(1|(2;3;4));5)");
  CHECK(in_lanes(*tree, 1, {1, 1, 1, 1, 1, 1}).str() == "(0;1;2;3;4;5)");
}

TEST_CASE("auto beats the best sequential plan on the models of GraphPipe's evaluation") {
  const ir::PlanGraph models[] = {tests::candle_uno(1024), tests::dlrm(1024)};
  for (const ir::PlanGraph& graph : std::span(models).first(tests::case_count(1, std::size(models)))) {
    const ir::Cluster cluster = tests::summit(8);
    const auto best = plan("auto", {.graph = &graph, .cluster = &cluster});
    const auto line = plan("sequential", {.graph = &graph, .cluster = &cluster});
    REQUIRE(best.ok());
    REQUIRE(line.ok());
    CHECK(best->candidates.front().step_seconds < 0.95 * line->candidates.front().step_seconds);
  }
}
