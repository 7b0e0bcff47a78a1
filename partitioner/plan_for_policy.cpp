#include "partitioner/plan_for_policy.h"

#include <algorithm>

#include "partitioner/auto/planner.h"
#include "partitioner/baselines/shaped_split.h"
#include "partitioner/known_steps.h"
#include "partitioner/several_searches.h"

namespace graphpipe::partitioner {
namespace {

/// Plans, best first, whose orders are searched to the end after all have been compared.
constexpr size_t kSearchedPlans = 4;

ir::Assignment with_turns(ir::Assignment assignment) {
  for (ir::StageChoice& choice : assignment.choice)
    if (choice.devices.size() > 1) choice.mode = ir::ReplicaMode::kRoundRobin;
  return assignment;
}

class PolicySearch {
 public:
  PolicySearch(std::string_view planner, const PlanRequest& asked, const PolicyNeeds& needs)
      : planner_(planner), request_(asked), needs_(needs), known_(asked.evaluate) {
    const PlannerEntry* entry = find_planner(planner);
    if (entry != nullptr) traits_ = entry->traits;
    if (asked.evaluate)
      request_.evaluate = [this](const ir::Assignment& plan) {
        return known_.of(needs_.takes_turns ? with_turns(plan) : plan);
      };
    if (asked.refusal && needs.takes_turns)
      request_.refusal = [&asked](const ir::Assignment& plan) { return asked.refusal(with_turns(plan)); };
  }

  Result<PlansForPolicy> run() {
    GP_TRY(PlanAnswer answer, first_answer());
    if (traits_.asks_others) add_shapes(answer);
    if (needs_.evaluate_to_end) search_orders(answer);
    PlansForPolicy plans;
    if (traits_.asks_others) {
      PlanRequest bounded = request_;
      bounded.without_flush = needs_.without_flush;
      set_own_objectives(bounded, answer);
      plans.multi_stage = best_multi_stage(request_, watch_, answer);
    }
    plans.answer = std::move(answer);
    if (!needs_.takes_turns) return plans;
    for (PlanCandidate& candidate : plans.answer.candidates) candidate.assignment = with_turns(candidate.assignment);
    if (plans.multi_stage) plans.multi_stage = with_turns(*plans.multi_stage);
    return plans;
  }

 private:
  /// Whether the request leaves the cut to a planner that makes the shape, which others do not.
  bool may_take(ir::StageShape shape) const {
    return shape != ir::StageShape::kAny && traits_.takes_shapes && request_.replicas.empty() &&
           request_.manual == nullptr;
  }
  bool is_cancelled() const { return request_.cancel != nullptr && request_.cancel->load(); }

  Result<PlanAnswer> first_answer() const {
    if (may_take(needs_.shape))
      return traits_.asks_others ? plan_for_shape(request_, needs_.shape, watch_)
                                 : plan_in_shape(request_, needs_.shape);
    if (shares_devices(needs_.shape) && has_more_stages_than_devices() && request_.manual == nullptr)
      return refuse_stages();
    if (needs_.without_flush) return plan_asynchronous(planner_, request_, watch_);
    Result<PlanAnswer> answer = plan(planner_, request_);
    if (!answer && has_more_stages_than_devices()) {
      for (const ir::StageShape shape : needs_.shapes) {
        if (!may_take(shape)) continue;
        if (Result<PlanAnswer> shaped = plan_in_shape(request_, shape)) return shaped;
      }
    }
    return answer;
  }

  static bool shares_devices(ir::StageShape shape) {
    return shape == ir::StageShape::kLoop || shape == ir::StageShape::kV;
  }

  /// Of which only some shapes have several on a device.
  bool has_more_stages_than_devices() const {
    return request_.stages && *request_.stages > std::ssize(request_.cluster->devices);
  }

  /// The policy runs several stages on a device, of which this planner or this request does not let it have any.
  Diagnostic refuse_stages() const {
    std::string names;
    for (const PlannerEntry* entry : planners_with(&PlannerTraits::takes_shapes))
      names += text(names.empty() ? "" : " or ", entry->name);
    const bool by_planner = !traits_.takes_shapes;
    return {.code = Code::kUsage,
            .message = text("--stages ", *request_.stages, " does not fit ", request_.cluster->devices.size(),
                            " devices, since ",
                            by_planner ? text("the planner ", planner_, " puts each stage on devices of its own")
                                       : std::string("stages that share a device have no replicas")),
            .hint = by_planner ? text("with --planner ", names, " the policy runs several stages on each")
                               : std::string("leave out --replicas, or ask for as many stages as there are devices")};
  }

  /// What one of the policies finds on its own stage graph, the search for a policy finds.
  void add_shapes(PlanAnswer& answer) const {
    for (const ir::StageShape shape : needs_.shapes) {
      if (!may_take(shape) || is_cancelled()) continue;
      PlanRequest rest = with_time_left(request_, watch_);
      rest.known_step = answer.candidates.front().step_seconds;
      Result<PlanAnswer> shaped = plan_in_shape(rest, shape);
      if (!shaped) continue;  // its number of stages is not the one asked for, or no plan of its shape is shorter
      auto& best = *std::ranges::min_element(shaped->candidates, {}, &PlanCandidate::step_seconds);
      if (best.step_seconds < answer.candidates.front().step_seconds)
        answer.candidates.insert(answer.candidates.begin(), std::move(best));
    }
  }

  /// Puts the plan first that is the best of the first few with orders that are searched to the end.
  void search_orders(PlanAnswer& answer) const {
    const size_t count = std::min(kSearchedPlans, answer.candidates.size());
    for (size_t i = 0; i < count && count > 1; ++i) {
      if (is_cancelled() || watch_.seconds() > request_.time_limit) break;
      PlanCandidate& candidate = answer.candidates[i];
      candidate.step_seconds = std::min(candidate.step_seconds, needs_.evaluate_to_end(candidate.assignment));
    }
    std::ranges::stable_sort(answer.candidates, {}, &PlanCandidate::step_seconds);
  }

  const std::string_view planner_;
  PlanRequest request_;
  const PolicyNeeds& needs_;
  KnownSteps known_;
  PlannerTraits traits_;
  const Stopwatch watch_;
};

}  // namespace

Result<PlansForPolicy> plan_for_policy(std::string_view planner, const PlanRequest& request, const PolicyNeeds& needs) {
  return PolicySearch(planner, request, needs).run();
}

}  // namespace graphpipe::partitioner
