#include "partitioner/auto/climb.h"

#include <algorithm>

#include "partitioner/graph/coarsen.h"
#include "partitioner/graphpipe/planner.h"
#include "partitioner/improve/plan_hill_climb.h"

namespace graphpipe::partitioner {

namespace {

/// Plans that one climb may try: fewer where each takes longer, and a share of them for narrow requests.
constexpr int64_t kMaxEvaluations = 1500;
constexpr double kEvaluationWork = 3e5;
constexpr int64_t kNarrowShare = 4;
/// Fewer where plans are simulated, and fewest where steps overlap, so that several are simulated.
constexpr int64_t kSimulatedEvaluations = 120, kEvaluationsWithoutFlush = 30;

int64_t evaluations_for(const ir::PlanGraph& graph, const PlanRequest& request) {
  const double work = static_cast<double>(graph.nodes.size() + 4 * request.cluster->devices.size());
  const auto all = std::clamp(static_cast<int64_t>(kEvaluationWork / work), int64_t{50}, kMaxEvaluations);
  if (request.evaluate) return std::min(all, request.without_flush ? kEvaluationsWithoutFlush : kSimulatedEvaluations);
  return is_narrow(request) ? all / kNarrowShare : all;
}

}  // namespace

bool is_narrow(const PlanRequest& request) { return request.micro_batch || request.stages; }

ir::Assignment climb_from(const PlanRequest& request, const ir::Assignment& start, Deadline& deadline) {
  const size_t nodes = request.graph->nodes.size();
  const NodeGroups groups = group_nodes(*request.graph);
  const double parts = 4 * static_cast<double>(start.choice.size());
  const CoarseGraph small =
      contract(*request.graph, coarsen(*request.graph, groups, {.parts = parts, .stage_of = &start.stage_of}));
  PlanRequest of_parts = small_request(request, small.graph);
  if (request.evaluate)
    of_parts.evaluate = [&](const ir::Assignment& assignment) {
      return request.evaluate(expand(small, nodes, assignment));
    };
  ir::Assignment assignment;
  assignment.choice = start.choice;
  for (const auto& members : small.members) assignment.stage_of.push_back(start.stage_of[members.front()]);
  return expand(small, nodes,
                hill_climb(of_parts, std::move(assignment), evaluations_for(small.graph, request), deadline));
}

}  // namespace graphpipe::partitioner
