// Requests that stages recompute always, or never.

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "partitioner/check_plan.h"
#include "partitioner/planner.h"
#include "tests/support/plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;

namespace {

/// Whether every stage does as asked: with a backward, as it is here of every node, it recomputes always or never.
bool keeps(const ir::Assignment& assignment, Recompute asked) {
  return std::ranges::all_of(assignment.choice, [&](const ir::StageChoice& choice) {
    return choice.recompute == (asked == Recompute::kAlways);
  });
}

}  // namespace

TEST_CASE("plans of every planner recompute as the request says") {
  const ir::PlanGraph graph = tests::plan_graph(
      {{}, {0}, {0}, {1, 2}, {3}}, std::vector<tests::NodePrice>(5, {.seconds = 1, .bytes = 1000, .weight_bytes = 100}),
      Samples(8));
  const ir::Cluster cluster = ir::equal_devices(3);
  std::map<Recompute, int> answers;
  for (const PlannerEntry& planner : planners()) {
    if (planner.traits.is_given) continue;
    CAPTURE(planner.name);
    for (const Recompute asked : {Recompute::kAlways, Recompute::kNever}) {
      const auto answer = plan(planner.name, {.graph = &graph, .cluster = &cluster, .recompute = asked});
      if (!answer.ok()) continue;
      ++answers[asked];
      for (const PlanCandidate& candidate : answer->candidates) CHECK(keeps(candidate.assignment, asked));
    }
  }
  for (const Recompute asked : {Recompute::kAlways, Recompute::kNever}) CHECK(answers[asked] > 10);
}

TEST_CASE("the checker finds stages that do otherwise") {
  const ir::PlanGraph graph = tests::chain_graph(4, {.seconds = 1, .bytes = 1000, .weight_bytes = 100}, Samples(8));
  const ir::Cluster cluster = ir::equal_devices(2);
  for (const Recompute asked : {Recompute::kAlways, Recompute::kNever}) {
    const auto answer = plan(kSequential, {.graph = &graph, .cluster = &cluster, .stages = 2, .recompute = asked});
    REQUIRE(answer.ok());
    ir::Assignment assignment = answer->candidates.front().assignment;
    const auto problems_of = [&](Recompute wanted) {
      return check_plan(graph, cluster, assignment,
                        {.objective = std::numeric_limits<double>::quiet_NaN(), .recompute = wanted});
    };
    CHECK(problems_of(asked).empty());
    assignment.choice[ir::StageId(1u)].recompute ^= true;
    const Diagnostics problems = problems_of(asked);
    REQUIRE(problems.size() == 1);
    CHECK(problems.front().message.find("stage 1") != std::string::npos);
    CHECK(problems_of(Recompute::kAuto).empty());
  }
}

TEST_CASE("recomputing stages cost their forwards again, and the best cut of them is found") {
  const ir::PlanGraph graph = tests::chain_graph(6, {.seconds = 1, .bytes = 1000, .weight_bytes = 100}, Samples(8));
  const ir::Cluster cluster = ir::equal_devices(2);
  const auto objective = [&](std::string_view planner, Recompute asked) {
    const auto answer = plan(
        planner, {.graph = &graph, .cluster = &cluster, .stages = 2, .micro_batch = Samples(1), .recompute = asked});
    REQUIRE(answer.ok());
    return answer->objective;
  };
  const double kept = objective(kGraphPipe, Recompute::kNever), again = objective(kGraphPipe, Recompute::kAlways);
  CHECK(again > 1.2 * kept);
  CHECK(again < 1.4 * kept);  // forwards are a third of the work
  CHECK(again == doctest::Approx(objective("exhaustive", Recompute::kAlways)));
}
