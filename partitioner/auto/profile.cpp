#include "partitioner/profile.h"

#include <algorithm>
#include <tuple>

#include "support/deadline.h"
#include "support/run_tasks.h"

namespace graphpipe::partitioner {
namespace {

/// A planner, and whether devices may hold several runs of layers.
struct Asked {
  const PlannerEntry* planner = nullptr;
  bool non_contiguous = false;
};

/// The planners that `auto` asks, those that know several runs of layers per device also with them. Of our own planners
/// the best few plans are measured, and the simulator chooses.
std::vector<Asked> asked_for_profiles() {
  std::vector<Asked> all;
  for (const PlannerEntry& planner : planners())
    if (planner.asked != AskedByAuto::kNever) all.push_back({&planner});
  for (const PlannerEntry* planner : planners_with(&PlannerTraits::plans_file_nodes)) all.push_back({planner, true});
  return all;
}

class BestOfAll {
 public:
  explicit BestOfAll(const PlanRequest& request) : request_(request), deadline_(request.time_limit, request.cancel) {}

  Result<PlanAnswer> run() const {
    PlanRequest half = rest_of_time();
    half.time_limit /= 2;
    half.thorough = false;  // its search ends in time, and all others are asked too
    Result<PlanAnswer> best = plan_folded(*planners_with(&PlannerTraits::asks_others).front(), half);
    if (!best.ok() && best.problems().front().code == Code::kUsage) return best;
    const double bound = min_step_of_profile(request_);
    bool complete = was_complete(best);
    std::string finder;
    if (!best.ok() || !is_proven(*best)) complete = ask_others(best, finder) && complete;
    if (best.ok()) present(*best, finder, bound, complete && !deadline_.passed());
    return best;
  }

 private:
  PlanRequest rest_of_time() const {
    PlanRequest rest = request_;
    rest.time_limit = std::max(0.0, request_.time_limit - deadline_.seconds());
    return rest;
  }

  /// Returns whether every planner was asked and ended before its time was over.
  bool ask_others(Result<PlanAnswer>& best, std::string& finder) const {
    const std::vector<Asked> asked = asked_for_profiles();
    std::vector<Result<PlanAnswer>> others(asked.size(), best);
    std::vector<char> ended(asked.size(), 0);
    run_tasks(asked.size(), request_.threads, [&](size_t i) {
      if (best.ok() && deadline_.passed()) ended[i] = 1;
      else others[i] = ask_one(asked[i]);
    });
    bool complete = std::ranges::none_of(ended, [](char was_ended) { return was_ended != 0; });
    for (size_t i = 0; i < asked.size(); ++i) {
      complete = complete && was_complete(others[i]);
      if (!others[i].ok() || (request_.accelerators_only && !is_on_accelerators(others[i]->candidates.front())))
        continue;
      if (best.ok() && !fits_better(others[i]->candidates.front(), best->candidates.front())) continue;
      best = std::move(others[i]);
      finder = text(asked[i].planner->name, asked[i].non_contiguous ? " --non-contiguous" : "");
    }
    return complete;
  }

  Result<PlanAnswer> ask_one(const Asked& asked) const {
    PlanRequest request = rest_of_time();
    request.original.non_contiguous = asked.non_contiguous;
    request.original.compat.clear();
    return plan_of_profile(*asked.planner, request);
  }

  static bool was_complete(const Result<PlanAnswer>& answer) {
    return answer.ok() ? answer->complete : answer.problems().front().code != Code::kInterrupted;
  }

  /// Memory is counted in the same way for all, as it is scheduled: a plan that is timed without the limit is behind
  /// every one that keeps to it.
  static bool fits_better(const PlanCandidate& a, const PlanCandidate& b) {
    const auto rank = [](const PlanCandidate& plan) {
      return std::tuple(!plan.fits, !(plan.own && plan.own->fits), plan.step_seconds);
    };
    return rank(a) < rank(b);
  }

  bool is_on_accelerators(const ir::StageChoice& choice) const {
    const auto& kinds = request_.graph->kind_of_device;
    return std::ranges::none_of(choice.devices,
                                [&](ir::DeviceId d) { return d.index() < kinds.size() && kinds[d.index()] != 0; });
  }

  bool is_on_accelerators(const PlanCandidate& candidate) const {
    return std::ranges::all_of(candidate.assignment.choice,
                               [&](const auto& choice) { return is_on_accelerators(choice); });
  }

  /// Whether the plan meets the bound, so that none is faster. The bound does not know the costs on CPUs or of several
  /// alternatives of a node.
  bool is_proven(const PlanAnswer& best) const {
    return best.candidates.front().step_seconds <= best.bound &&
           std::ranges::none_of(request_.graph->kind_of_device, [](int kind) { return kind != 0; }) &&
           std::ranges::all_of(request_.graph->nodes,
                               [](const ir::PlanNode& node) { return node.alternatives.size() <= 1; });
  }

  void present(PlanAnswer& best, const std::string& finder, double bound, bool complete) const {
    best.candidates.resize(1);
    PlanCandidate& plan = best.candidates.front();
    const bool is_bounded = std::ranges::all_of(
        plan.assignment.choice, [&](const auto& choice) { return choice.degree == 1 && is_on_accelerators(choice); });
    if (!finder.empty()) best.stopped = "found by " + finder;
    best.objective = plan.step_seconds;
    best.bound = is_bounded ? bound : 0;
    plan.own = {.objective = best.objective, .bound = best.bound, .unit = "s", .fits = plan.own && plan.own->fits};
    best.search_seconds = deadline_.seconds();
    best.complete = complete;
  }

  const PlanRequest& request_;
  const Deadline deadline_;
};

}  // namespace

Result<PlanAnswer> plan_auto_of_profile(const PlanRequest& request) { return BestOfAll(request).run(); }

}  // namespace graphpipe::partitioner
