#include "partitioner/several_searches.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "partitioner/auto/planner.h"
#include "partitioner/baselines/shaped_split.h"
#include "partitioner/heterogeneous/any_order.h"
#include "partitioner/heterogeneous/device_order.h"

namespace graphpipe::partitioner {
namespace {

/// Numbers of replicas below all devices that are tried: the first few, and the halves of all.
constexpr size_t kFewReplicas = 8;

// The fastest of replicas on the first 1, 2, ... devices, and where these differ on the fastest so many: to add up
// gradients may cost more than another device saves.
Result<PlanAnswer> plan_replicas(const PlanRequest& request, const Stopwatch& watch) {
  const size_t devices = request.cluster->devices.size();
  std::set<size_t, std::greater<>> counts;
  for (size_t count = devices; count > 0; count /= 2) counts.insert(count);
  for (size_t count = 1; count <= std::min(kFewReplicas, devices); ++count) counts.insert(count);
  Result<PlanAnswer> first = plan_in_shape(request, ir::StageShape::kReplicas);
  std::optional<PlanAnswer> best;
  if (first) best = *first;
  counts.erase(devices);
  const bool may_replicate = first || first.problems().front().code != Code::kBadPlan;
  const bool differ = devices_differ(*request.graph, *request.cluster);
  const auto rest = [&] {
    PlanRequest fewer = with_time_left(request, watch);
    if (best) fewer.known_step = best->candidates.front().step_seconds;
    return fewer;
  };
  for (const size_t count : counts) {
    if (!may_replicate) break;
    const ir::Cluster part = ir::first_devices(*request.cluster, static_cast<int>(count));
    PlanRequest fewer = rest();
    fewer.cluster = &part;
    if (Result<PlanAnswer> answer = plan_in_shape(fewer, ir::StageShape::kReplicas))
      merge_answers(best, std::move(*answer));
    if (!differ) continue;
    for (const PlannerEntry* planner : planners_with(&PlannerTraits::is_one_stage))
      if (Result<PlanAnswer> answer = ask_on_fastest(*planner, rest(), count)) merge_answers(best, std::move(*answer));
  }
  if (!best) return first;
  best->search_seconds = watch.seconds();
  return std::move(*best);
}

bool has_several_stages(const PlanCandidate& candidate) { return candidate.assignment.choice.size() > 1; }

}  // namespace

PlanRequest with_time_left(PlanRequest request, const Stopwatch& watch) {
  request.time_limit = std::max(0.0, request.time_limit - watch.seconds());
  return request;
}

Result<PlanAnswer> plan_asynchronous(std::string_view planner, PlanRequest request, const Stopwatch& watch) {
  request.without_flush = true;
  PlanRequest draining = request;
  draining.thorough = false;
  draining.ranks_drained = true;
  Result<PlanAnswer> best = plan(planner, draining);
  Result<PlanAnswer> steady = plan(planner, with_time_left(request, watch));
  if (!steady || !best) return steady ? steady : best;
  steady->complete = best->complete = steady->complete && best->complete;
  steady->search_seconds = best->search_seconds = steady->search_seconds + best->search_seconds;
  return steady->candidates.front().step_seconds < best->candidates.front().step_seconds ? steady : best;
}

Result<PlanAnswer> plan_for_shape(const PlanRequest& request, ir::StageShape shape, const Stopwatch& watch) {
  if (shape == ir::StageShape::kReplicas) return plan_replicas(request, watch);
  const Result<PlanAnswer> first = plan_in_shape(request, shape);
  if (shape != ir::StageShape::kLoop) return first;  // policies of other shapes refuse one stage a device
  std::optional<PlanAnswer> best;
  if (first) best = *first;
  const auto rest = [&] {
    PlanRequest left = with_time_left(request, watch);
    if (best) left.known_step = best->candidates.front().step_seconds;
    return left;
  };
  const auto take = [&](Result<PlanAnswer> answer) {
    if (answer) merge_answers(best, std::move(*answer));
  };
  if (!request.stages) {
    PlanRequest one = rest();
    one.stages = static_cast<int>(request.cluster->devices.size());
    take(plan_in_shape(one, shape));
    take(plan(kSequential, one));
  }
  for (const PlannerEntry& entry : planners())
    if (entry.asked != AskedByAuto::kNever && !entry.traits.takes_shapes && !entry.traits.is_one_stage)
      take(plan(entry.name, rest()));
  if (!best) return first;
  best->search_seconds = watch.seconds();
  return std::move(*best);
}

std::optional<ir::Assignment> best_multi_stage(PlanRequest request, const Stopwatch& watch, const PlanAnswer& answer) {
  const auto& chosen = answer.candidates.front().assignment.choice;
  if (chosen.size() != 1 || chosen[ir::StageId(0u)].devices.size() < 2 || request.stages) return std::nullopt;
  const auto known = std::ranges::find_if(answer.candidates, has_several_stages);
  if (known != answer.candidates.end()) return known->assignment;
  std::optional<PlanCandidate> best;
  for (const size_t stages : std::set{size_t{2}, request.cluster->devices.size()}) {
    request.stages = static_cast<int>(stages);
    const auto found = plan(kGraphPipe, with_time_left(request, watch));
    if (found && (!best || found->candidates.front().step_seconds < best->step_seconds))
      best = found->candidates.front();
  }
  return best ? std::optional(best->assignment) : std::nullopt;
}

}  // namespace graphpipe::partitioner
