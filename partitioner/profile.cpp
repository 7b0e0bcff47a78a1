#include "partitioner/profile.h"

#include <algorithm>
#include <limits>

#include "cost/fold.h"
#include "cost/lower_bound.h"
#include "partitioner/check_plan.h"
#include "partitioner/cost_models/plan_by_units.h"

namespace graphpipe::partitioner {
namespace {

/// The best plans of a search, which are measured at the end.
constexpr size_t kMeasured = 4;

/// The folded graph at the prices of accelerators.
cost::FoldedGraph folded_for_accelerators(const ir::PlanGraph& graph) {
  cost::FoldedGraph folded = cost::fold_backward(graph);
  folded.graph.kind_of_device.clear();
  for (ir::PlanNode& node : folded.graph.nodes) node.by_kind.clear();
  return folded;
}

void measure(const PlanRequest& request, PlanAnswer& answer) {
  GP_CHECK(request.measure);
  for (PlanCandidate& candidate : answer.candidates) {
    const PlanMeasure measured = request.measure(candidate);
    candidate.step_seconds = measured.step_seconds;
    candidate.fits = measured.fits;
  }
  std::ranges::stable_sort(answer.candidates, {},
                           [](const PlanCandidate& plan) { return std::pair(!plan.fits, plan.step_seconds); });
}

/// A plan file may name alternatives that the nodes do not have. They are refused here, since their costs are looked up
/// before a checker sees the plan.
Status check_alternatives(const ir::PlanGraph& graph, const ir::Assignment& plan) {
  if (!plan.alternative.empty() && plan.alternative.size() != graph.nodes.size())
    return Diagnostic{.code = Code::kBadPlan,
                      .message = "the plan takes alternatives of layers, and this profile has none",
                      .hint = "make the plan again from this profile"};
  for (const ir::PlanNodeId id : ids<ir::PlanNodeId>(plan.alternative.size())) {
    const auto count = std::max<int64_t>(1, std::ssize(graph.nodes[id].alternatives));
    if (plan.alternative[id] < count) continue;
    return Diagnostic{.code = Code::kBadPlan,
                      .origin = graph.nodes[id].label,
                      .message = text("the plan takes alternative ", plan.alternative[id], ", the profile has ", count),
                      .hint = "correct the number, or make the plan again from this profile"};
  }
  return Ok{};
}

}  // namespace

ir::Cluster accelerators_of(const PlanRequest& request) {
  const auto& kinds = request.graph->kind_of_device;
  const auto count = static_cast<int>(std::ranges::count(kinds, 0));
  return count == std::ssize(kinds) ? *request.cluster : ir::first_devices(*request.cluster, count);
}

Result<PlanAnswer> plan_folded(const PlannerEntry& planner, const PlanRequest& request) {
  const cost::FoldedGraph folded = folded_for_accelerators(*request.graph);
  const ir::Cluster cluster = accelerators_of(request);
  PlanRequest ours = request;
  ours.graph = &folded.graph;
  ours.cluster = &cluster;
  ours.profile = nullptr;
  if (request.evaluate)
    ours.evaluate = [&](const ir::Assignment& assignment) { return request.evaluate(unfold(folded, assignment)); };
  ir::Assignment manual;
  ir::PlanGraph priced;
  if (request.manual != nullptr) {
    if (request.manual->stage_of.size() != folded.node_of.size())
      return Diagnostic{.code = Code::kBadPlan,
                        .message = text("the plan places ", request.manual->stage_of.size(), " of ",
                                        folded.node_of.size(), " layers"),
                        .hint = "make the plan again from this profile"};
    GP_TRY(manual, fold(folded, *request.manual));
    GP_TRY_VOID(check_alternatives(folded.graph, manual));
    ours.manual = &manual;
    priced = cost::with_alternatives(folded.graph, manual, cluster.levels.front().bandwidth.count);
    ours.graph = &priced;
  }
  GP_TRY(PlanAnswer answer, plan(planner.name, ours));
  answer.candidates.resize(std::min(kMeasured, answer.candidates.size()));
  for (PlanCandidate& candidate : answer.candidates) candidate.assignment = unfold(folded, candidate.assignment);
  measure(request, answer);
  answer.bound = cost::plan_bound(folded.graph, cluster).step(folded.graph.batch);
  for (PlanCandidate& candidate : answer.candidates)
    candidate.own = {.objective = candidate.step_seconds, .bound = answer.bound, .unit = "s", .fits = candidate.fits};
  answer.objective = answer.candidates.front().step_seconds;
  return answer;
}

double min_step_of_profile(const PlanRequest& request) {
  const cost::FoldedGraph folded = folded_for_accelerators(*request.graph);
  return cost::plan_bound(folded.graph, accelerators_of(request)).step(folded.graph.batch);
}

double usual_seconds_of_profile(std::string_view planner) {
  const PlannerEntry* entry = find_planner(planner);
  return entry != nullptr && entry->traits.asks_others ? 60 : 40;
}

Result<PlanAnswer> plan_of_profile(const PlannerEntry& planner, const PlanRequest& request) {
  if (planner.traits.asks_others) return plan_auto_of_profile(request);
  if (planner.search == nullptr) return plan_folded(planner, request);
  GP_TRY(PlanAnswer answer, plan_by_units(planner, request));
  const cost::FoldedGraph folded = cost::fold_backward(*request.graph);
  for (const PlanCandidate& candidate : answer.candidates) {
    // A plan that separates what a schedule keeps together has a cost in its planner's terms only. Memory and the
    // objective are in those terms too, and search_unit has checked them.
    const auto decided = fold(folded, candidate.assignment);
    if (!decided.ok()) continue;
    const Diagnostics problems = check_plan(folded.graph, *request.cluster, *decided,
                                            {.one_stage_per_device = false,
                                             .limit_memory = false,
                                             .ordered = false,
                                             .objective = std::numeric_limits<double>::quiet_NaN()});
    if (!problems.empty()) return problems;
  }
  measure(request, answer);
  return answer;
}

}  // namespace graphpipe::partitioner
