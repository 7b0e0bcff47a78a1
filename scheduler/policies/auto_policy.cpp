// `auto`: every synchronous policy that can order the stage graph is simulated; the fastest one that fits the devices'
// memory is improved by a local search. Orders that would be too late even if no message waited are not simulated.

#include <algorithm>
#include <limits>

#include "scheduler/policies/schedule_local_search.h"
#include "scheduler/simulate/relaxed_times.h"
#include "scheduler/simulate/simulate.h"

namespace graphpipe::scheduler {
namespace {

struct Candidate {
  Schedule order;
  /// Its step without contention, which is no longer than the simulated one.
  Ticks min_makespan;
};

Candidate candidate_of(const PolicyRequest& request, Schedule order) {
  RelaxedTimes relaxed(request.graph, request.cluster, order, fine_ticks_per_second(request.graph));
  const std::optional<RelaxedTimes::Score> score = relaxed.score();
  const Ticks never(std::numeric_limits<int64_t>::max());
  return {.order = std::move(order), .min_makespan = score ? score->makespan : never};
}

/// The best order by simulation; of equal ones the first by `min_makespan`.
std::optional<Schedule> best_of(const PolicyRequest& request, std::vector<Candidate> candidates) {
  std::ranges::stable_sort(candidates, {}, &Candidate::min_makespan);
  std::optional<Schedule> best;
  std::optional<OrderScore> best_score;
  for (Candidate& candidate : candidates) {
    if (best_score && best_score->excess == Bytes(0) && candidate.min_makespan > best_score->makespan) break;
    const std::optional<OrderScore> score =
        score_order(request.graph, request.cluster, candidate.order, request.lowering);
    if (!score || (best_score && *best_score <= *score)) continue;
    best_score = score;
    best = std::move(candidate.order);
  }
  return best;
}

}  // namespace

Result<Schedule> order_auto(const PolicyRequest& request) {
  std::vector<Candidate> candidates;
  Diagnostics problems = {{.code = Code::kBadPlan,
                           .message = "no synchronous policy can order these stages",
                           .hint = "change the plan as one of the policies asks"}};
  for (const Policy& policy : all_policies()) {
    if (policy.tries_others || policy.asynchronous || policy.forward_only) continue;
    Result<Schedule> order = policy.order(request);
    if (order) candidates.push_back(candidate_of(request, *std::move(order)));
    for (Diagnostic problem : order.problems()) {
      if (!problem.message.starts_with(policy.name)) problem.message = text(policy.name, ": ", problem.message);
      problems.push_back(std::move(problem));
    }
  }
  std::optional<Schedule> best = best_of(request, std::move(candidates));
  if (!best) return problems;
  return improve_order(request.graph, request.cluster, *std::move(best),
                       {.max_actions = request.searched_actions, .lowering = request.lowering});
}

}  // namespace graphpipe::scheduler
