// `auto`: every synchronous policy that can order the stage graph is simulated; the fastest one that fits the devices'
// memory is improved by a local search.

#include "scheduler/policies/schedule_local_search.h"

namespace graphpipe::scheduler {

Result<Schedule> order_auto(const PolicyRequest& request) {
  std::optional<Schedule> best;
  std::optional<OrderScore> best_score;
  Diagnostics problems = {{.code = Code::kBadPlan,
                           .message = "no synchronous policy can order these stages",
                           .hint = "change the plan as one of the policies asks"}};
  for (const Policy& policy : all_policies()) {
    if (policy.order == order_auto || policy.asynchronous || policy.forward_only) continue;
    Result<Schedule> candidate = policy.order(request);
    if (!candidate.ok()) {
      for (Diagnostic problem : candidate.problems()) {
        if (!problem.message.starts_with(policy.name)) problem.message = text(policy.name, ": ", problem.message);
        problems.push_back(std::move(problem));
      }
      continue;
    }
    const std::optional<OrderScore> score = score_order(request.graph, request.cluster, *candidate);
    if (!score || (best_score && *best_score <= *score)) continue;
    best_score = score;
    best = *std::move(candidate);
  }
  if (!best) return problems;
  return improve(request.graph, request.cluster, *std::move(best));
}

}  // namespace graphpipe::scheduler
