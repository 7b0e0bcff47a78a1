// What a policy asks of plans reaches the planners and their evaluation.

#include "partitioner/plan_for_policy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "ir/cluster.h"
#include "tests/support/plan_graphs.h"

namespace graphpipe::partitioner {
namespace {

bool in_turns(const ir::Assignment& plan) {
  for (const ir::StageChoice& choice : plan.choice)
    if (choice.devices.size() > 1 && choice.mode != ir::ReplicaMode::kRoundRobin) return false;
  return true;
}

TEST_CASE("replicas take turns in every plan that is timed or returned, where the policy lets them") {
  const ir::PlanGraph graph = tests::chain_graph(4);
  const ir::Cluster cluster = ir::equal_devices(2);
  for (const char* planner : {"data-parallel", "auto"}) {
    CAPTURE(planner);
    PlanRequest request{.graph = &graph, .cluster = &cluster};
    int timed = 0, divided = 0;
    request.evaluate = [&](const ir::Assignment& plan) {
      ++timed;
      divided += in_turns(plan) ? 0 : 1;
      return plan.choice.size() == 1 ? 1.0 : 2.0;
    };
    const auto plans = plan_for_policy(planner, request, {.takes_turns = true});
    REQUIRE(plans.ok());
    CHECK(timed > 0);
    CHECK(divided == 0);
    CHECK(plans->answer.candidates.front().assignment.choice.size() == 1);
    for (const PlanCandidate& candidate : plans->answer.candidates) CHECK(in_turns(candidate.assignment));
    if (plans->multi_stage) CHECK(in_turns(*plans->multi_stage));
  }
}

TEST_CASE("replicas in two directions divide the optimizer's state if they are to") {
  ir::PlanGraph graph = tests::chain_graph(4, {.seconds = 1, .bytes = 1, .weight_bytes = 100});
  graph.optimizer_state_per_weight_byte = 2;
  const ir::Cluster cluster = ir::equal_devices(2);
  for (const bool divides : {false, true}) {
    CAPTURE(divides);
    PlanRequest request{.graph = &graph, .cluster = &cluster, .shard_optimizer_state = divides};
    const auto as_asked = [&](const ir::Assignment& plan) {
      return std::ranges::all_of(
          plan.choice, [&](const ir::StageChoice& choice) { return choice.shard_optimizer_state == divides; });
    };
    bool is_timed_so = true;
    request.evaluate = [&](const ir::Assignment& plan) {
      is_timed_so = is_timed_so && as_asked(plan);
      return 1.0;
    };
    const auto plans = plan_for_policy("equal-split", request, {.shape = ir::StageShape::kBidirectional});
    REQUIRE(plans.ok());
    CHECK(is_timed_so);
    CHECK(plans->answer.candidates.front().assignment.choice.size() == 2);
    CHECK(as_asked(plans->answer.candidates.front().assignment));
  }
}

TEST_CASE("more stages than devices, which the policy allows and the planner does not, name the planners that do") {
  const ir::PlanGraph graph = tests::chain_graph(6);
  const ir::Cluster cluster = ir::equal_devices(2);
  PlanRequest request{.graph = &graph, .cluster = &cluster, .stages = 4};
  request.evaluate = [](const ir::Assignment&) { return 1.0; };
  for (const ir::StageShape shape : {ir::StageShape::kLoop, ir::StageShape::kV}) {
    const auto refused = plan_for_policy("sequential", request, {.shape = shape});
    REQUIRE(!refused.ok());
    CHECK(to_line(refused.problems().front()) ==
          "error[usage] --stages 4 does not fit 2 devices, since the planner sequential puts each stage on devices of "
          "its own; with --planner auto or equal-split the policy runs several stages on each");
    for (const char* planner : {"auto", "equal-split"}) CHECK(plan_for_policy(planner, request, {.shape = shape}).ok());
  }
}

TEST_CASE("no plan is timed twice, however many searches find it") {
  const ir::PlanGraph graph = tests::chain_graph(6);
  const ir::Cluster cluster = ir::equal_devices(3);
  for (const bool takes_turns : {false, true}) {
    CAPTURE(takes_turns);
    PlanRequest request{.graph = &graph, .cluster = &cluster};
    std::vector<ir::Assignment> timed;
    size_t again = 0;
    request.evaluate = [&](const ir::Assignment& plan) {
      again += std::ranges::find(timed, plan) != timed.end() ? 1 : 0;
      timed.push_back(plan);
      return 1e3 + static_cast<double>(plan.choice.size());
    };
    REQUIRE(plan_for_policy("auto", request, {.takes_turns = takes_turns}).ok());
    CHECK(timed.size() > 10);
    CHECK(again == 0);
  }
}

TEST_CASE("where the policy is to be found, the orders of the best few plans are searched to the end, and decide") {
  const ir::PlanGraph graph = tests::chain_graph(6);
  const ir::Cluster cluster = ir::equal_devices(3);
  PlanRequest request{.graph = &graph, .cluster = &cluster};
  const auto micro_batch = [](const ir::Assignment& plan) {
    return static_cast<double>(plan.choice[ir::StageId(0u)].micro_batch.count);
  };
  // Far above any bound, so that plans are not left out.
  request.evaluate = [&](const ir::Assignment& plan) { return 1e6 + micro_batch(plan); };
  int asked = 0;
  const auto to_end = [&](const ir::Assignment& plan) {
    ++asked;
    return 5e5 - micro_batch(plan);
  };
  const auto first = plan_for_policy("graphpipe", request, {}),
             plans = plan_for_policy("graphpipe", request, {.evaluate_to_end = to_end});
  REQUIRE(plans.ok());
  REQUIRE(first.ok());
  CHECK(asked > 1);
  CHECK(asked <= 4);
  const ir::Assignment& best = plans->answer.candidates.front().assignment;
  CHECK(micro_batch(best) > micro_batch(first->answer.candidates.front().assignment));
  CHECK(plans->answer.candidates.front().step_seconds == 5e5 - micro_batch(best));
}

}  // namespace
}  // namespace graphpipe::partitioner
