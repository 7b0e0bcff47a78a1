#include "partitioner/several_searches.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "ir/cluster.h"
#include "tests/support/random_plan_graphs.h"

namespace graphpipe::partitioner {
namespace {

PlanCandidate candidate_of(size_t stages) {
  PlanCandidate candidate;
  for (size_t s = 0; s < stages; ++s) candidate.assignment.choice.push_back({.devices = {ir::DeviceId(s)}});
  if (stages == 1) candidate.assignment.choice[ir::StageId(0u)].devices.emplace_back(1u);
  return candidate;
}

TEST_CASE("beside data parallelism stands the best plan of several stages: a candidate, else GraphPipe's own") {
  const ir::PlanGraph graph = tests::chain_graph(4);
  const ir::Cluster cluster = ir::equal_devices(2);
  PlanRequest request{.graph = &graph, .cluster = &cluster};
  const Stopwatch watch;
  PlanAnswer answer{.candidates = {candidate_of(1)}};
  const auto searched = best_multi_stage(request, watch, answer);
  REQUIRE(searched);
  CHECK(searched->choice.size() == 2);
  CHECK(searched->stage_of.size() == graph.nodes.size());
  answer.candidates.push_back(candidate_of(2));
  CHECK(best_multi_stage(request, watch, answer) == answer.candidates.back().assignment);
  request.stages = 1;
  CHECK_FALSE(best_multi_stage(request, watch, answer));
  request.stages.reset();
  std::swap(answer.candidates.front(), answer.candidates.back());
  CHECK_FALSE(best_multi_stage(request, watch, answer));
}

TEST_CASE("plans for batches that flow are found with either closed form, and none where a search finds none") {
  const ir::PlanGraph graph = tests::chain_graph(4);
  const ir::Cluster cluster = ir::equal_devices(2);
  const Stopwatch watch;
  const auto found = plan_asynchronous("graphpipe", {.graph = &graph, .cluster = &cluster}, watch);
  REQUIRE(found);
  CHECK(found->complete);
  CHECK_FALSE(plan_asynchronous("graphpipe", {.graph = &graph, .cluster = &cluster, .stages = 5}, watch));
}

TEST_CASE("for loops of stages no planner has a faster plan than the search that asks them all") {
  ir::PlanGraph graph = tests::chain_graph(12);
  for (const ir::PlanNodeId node : graph.node_ids())
    graph.nodes[node].forward = ir::SampleFunction::polynomial(0, 1e-4 * static_cast<double>(1 + node.index() * 7 % 5));
  const ir::Cluster cluster = ir::equal_devices(3);
  const Stopwatch watch;
  for (const PlannerEntry& entry : planners()) {
    if (entry.asked == AskedByAuto::kNever) continue;
    CAPTURE(entry.name);
    PlanRequest request{.graph = &graph, .cluster = &cluster};
    const auto own = plan(entry.name, request);
    REQUIRE(own.ok());
    // Far above any bound, so that no plan is left out; this planner's is best.
    request.evaluate = [&](const ir::Assignment& plan) {
      return plan == own->candidates.front().assignment ? 1e6 : 2e6;
    };
    const auto found = plan_for_shape(request, ir::StageShape::kLoop, watch);
    REQUIRE(found.ok());
    const bool loops = !entry.traits.is_one_stage && !entry.traits.takes_shapes;
    if (loops) CHECK(found->candidates.front().step_seconds == 1e6);
  }
}

TEST_CASE("a further search has what is left of the time limit, and never less than none") {
  const Stopwatch watch;
  CHECK(with_time_left({{.time_limit = kInfinity}}, watch).time_limit == kInfinity);
  CHECK(with_time_left({{.time_limit = 0}}, watch).time_limit == 0);
}

TEST_CASE("searches that follow each other share the time limit: the later ones end when it is over") {
  ir::PlanGraph graph = tests::chain_graph(12);
  for (const ir::PlanNodeId node : graph.node_ids())
    graph.nodes[node].forward = ir::SampleFunction::polynomial(0, 1e-4 * static_cast<double>(1 + node.index() * 7 % 5));
  const ir::Cluster cluster = ir::equal_devices(3);
  const auto timed_within = [&](double seconds) {
    int timed = 0;
    PlanRequest request{.graph = &graph, .cluster = &cluster};
    request.time_limit = seconds;
    request.evaluate = [&timed](const ir::Assignment&) {
      if (++timed == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return 1.0;
    };
    const auto found = plan_asynchronous(kSequential, request, Stopwatch());
    REQUIRE(found.ok());
    CHECK(found->complete == (seconds > 1));
    return timed;
  };
  const int all = timed_within(1e6);
  CHECK(all > 6);
  CHECK(2 * timed_within(0.25) < all);
}

TEST_CASE(
    "where stages may differ in their micro-batches, plans of equal ones are timed beside those that look better") {
  // A slow link, so that plans whose sizes differ look better than all plans of one size.
  ir::Cluster cluster = ir::equal_devices(4);
  cluster.levels = {{.group = 4, .latency = Seconds(0.125), .bandwidth = BytesPerSecond(0.3)}};
  for (const auto& [planner, seed] :
       {std::pair(kGraphPipe, 12), {kGraphPipe, 54}, {kSequential, 9}, {kSequential, 54}}) {
    CAPTURE(planner);
    CAPTURE(seed);
    const ir::PlanGraph graph = tests::random_sp_graph(static_cast<uint64_t>(seed), 12, Samples(16));
    PlanRequest request{.graph = &graph, .cluster = &cluster, .micro_batch_per_stage = true};
    request.evaluate = [](const ir::Assignment& plan) {
      const Samples first = plan.choice.begin()->micro_batch;
      return std::ranges::all_of(plan.choice, [&](const auto& c) { return c.micro_batch == first; }) ? 1e-3 : 2e-3;
    };
    const auto found = plan(planner, request);
    REQUIRE(found.ok());
    CHECK(found->candidates.front().step_seconds == 1e-3);
  }
}

}  // namespace
}  // namespace graphpipe::partitioner
