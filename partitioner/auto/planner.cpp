#include "partitioner/auto/planner.h"

#include <algorithm>
#include <functional>
#include <set>

#include "cost/lower_bound.h"
#include "partitioner/auto/climb.h"
#include "partitioner/baselines/exhaustive.h"
#include "partitioner/cost_models/plan_by_units.h"
#include "partitioner/graphpipe/micro_batch_sweep.h"
#include "partitioner/graphpipe/planner.h"
#include "partitioner/heterogeneous/any_order.h"
#include "partitioner/heterogeneous/chain_dp.h"
#include "partitioner/heterogeneous/device_order.h"
#include "partitioner/several_searches.h"
#include "support/run_tasks.h"
#include "support/stopwatch.h"

namespace graphpipe::partitioner {

namespace {

/// On small graphs every plan that may be better is tried, if there are no more than this.
constexpr int64_t kMaxExhaustivePlans = 20'000;
/// Plans that the local search starts from: fewer where each takes longer.
constexpr size_t kStarts = 4, kFewNodes = 40, kManyNodes = 600;

/// Of what all searches say where none has a plan: the first of each kind, without what some planner does not take.
/// `ended`: before their time was over. Then what the others found missing decides nothing; else it does, and limits of
/// single searches say nothing.
Diagnostics first_of_each_kind(Diagnostics refusals, bool ended) {
  const auto decides = [ended](const Diagnostic& each) { return (each.code == Code::kInterrupted) == ended; };
  if (std::ranges::any_of(refusals, decides)) std::erase_if(refusals, std::not_fn(decides));
  Diagnostics told;
  const bool all_usage = std::ranges::all_of(refusals, [](const auto& each) { return each.code == Code::kUsage; });
  for (const Diagnostic& problem : refusals) {
    const bool is_of_planner = problem.code == Code::kUsage && !all_usage;
    if (!is_of_planner && std::ranges::find(told, problem.code, &Diagnostic::code) == told.end())
      told.push_back(problem);
  }
  return told;
}

class AutoPlanner {
 public:
  explicit AutoPlanner(const PlanRequest& request)
      : request_(request), deadline_(request.time_limit, request.cancel), found_(request) {}

  Result<PlanAnswer> run() {
    GP_TRY_VOID(device_budget(request_));
    std::optional<PlanAnswer> best;
    Diagnostics refusals;
    const auto take = [&](Result<PlanAnswer> answer) {
      if (answer.ok()) merge_answers(best, std::move(*answer));
      else refusals.insert(refusals.end(), answer.problems().begin(), answer.problems().end());
    };
    // With a plan at hand, a planner that is asked when the time is over would only time its first one.
    const auto is_over = [&] { return best && deadline_.passed(); };
    for (const PlannerEntry* entry : planners_asked(AskedByAuto::kFirst))
      if (!is_over()) take(ask_either_way(*entry, rest_of(best)));
    if (best) start_from(*best);
    on_kinds_alone(best);
    if (!is_over())
      for (auto& answer : ask_side_by_side(planners_asked(AskedByAuto::kThen), rest_of(best))) take(std::move(answer));
    // What equal-split is of a model gives stages no replicas. Its search by Piper's cost model does, and has neither
    // of 2bw's limits on depth and devices.
    if (!is_over()) take(plan_by_units(*find_planner(kEqualSplit), rest_of(best)));
    if (!is_over()) on_fewer_devices(best);
    // The local search climbs from the best plan so far too, not only from the starts collected on the way.
    if (best) best_of_others_ = best->candidates.front().assignment;
    search_between();
    if (!is_over()) {
      Candidates unequal(request_);
      search_unequal_devices(request_, deadline_, unequal);
      for (const PlanCandidate& candidate : unequal.best(2 * kStarts)) starts_.push_back(candidate.assignment);
      found_.absorb(std::move(unequal));
      climb();
    }
    if (!found_.best(1).empty()) take(found_.answer(!deadline_.passed(), 0));
    if (!is_narrow(request_) && !is_over() && request_.cluster->levels.size() > 1)
      for (Result<PlanAnswer>& answer : search_within_groups(rest_of(best))) take(std::move(answer));
    // Last, because by then few plans may still beat the best known one. Graphs of many groups are refused there.
    if (!is_over())
      if (auto answer = plan_exhaustive_within(rest_of(best), kMaxExhaustivePlans); answer.ok())
        take(std::move(answer));
    if (!best) return first_of_each_kind(std::move(refusals), deadline_.passed());
    best->complete = best->complete && !deadline_.passed();
    set_own_objectives(request_, *best);
    best->search_seconds = watch_.seconds();
    return std::move(*best);
  }

 private:
  std::vector<Result<PlanAnswer>> ask_side_by_side(const std::vector<const PlannerEntry*>& entries,
                                                   const PlanRequest& request) const {
    std::vector<Result<PlanAnswer>> answers(entries.size(), Diagnostic{.code = Code::kInterrupted});
    run_tasks(entries.size(), request.threads, [&](size_t i) {
      PlanRequest rest = request;
      rest.time_limit = time_left();
      answers[i] = ask_either_way(*entries[i], rest);
    });
    return answers;
  }
  /// Planners that do not weigh recomputation have no plan where kept activations do not fit: then all are computed
  /// again. What searches on parts of the machine would find so, the search between them finds.
  static Result<PlanAnswer> ask_either_way(const PlannerEntry& planner, PlanRequest request) {
    Result<PlanAnswer> answer = ask(planner, request);
    const bool may_recompute =
        request.recompute == Recompute::kAuto && request.limit_memory && !planner.traits.asked_on_parts;
    if (answer.ok() || !may_recompute || answer.problems().front().code != Code::kNoFeasiblePlan) return answer;
    request.recompute = Recompute::kAlways;
    Result<PlanAnswer> recomputing = ask(planner, request);
    return recomputing.ok() ? recomputing : answer;
  }
  /// One stage with a replica on every device is not what a request for stages or replicas means.
  std::vector<const PlannerEntry*> planners_asked(AskedByAuto when) const {
    const bool may_be_one_stage = request_.replication && request_.replicas.empty() && !request_.stages;
    std::vector<const PlannerEntry*> entries;
    for (const PlannerEntry& entry : planners())
      if (entry.asked == when && (may_be_one_stage || !entry.traits.is_one_stage)) entries.push_back(&entry);
    return entries;
  }
  double time_left() const { return std::max(0.0, request_.time_limit - watch_.seconds()); }
  /// The request with the remaining time and the best step so far.
  PlanRequest rest_of(const std::optional<PlanAnswer>& best) const {
    PlanRequest rest = request_;
    rest.time_limit = time_left();
    rest.beside_sequential = true;
    if (best) rest.known_step = best->candidates.front().step_seconds;
    return rest;
  }
  size_t starts_to_climb_from() const {
    if (is_large() || is_narrow(request_)) return kStarts / 2;
    return request_.graph->nodes.size() <= kFewNodes ? 2 * kStarts : kStarts;
  }
  bool is_large() const { return request_.graph->nodes.size() > kManyNodes; }

  /// Where devices differ, the slow ones may be best left out: plans on the others, to climb from too.
  void on_kinds_alone(std::optional<PlanAnswer>& best) {
    for (const PlannerEntry* planner : planners_with(&PlannerTraits::asked_on_parts)) {
      if (is_large() || deadline_.passed()) return;
      for (PlanAnswer& answer : ask_on_kinds(*planner, rest_of(best)).answers) {
        starts_.push_back(answer.candidates.front().assignment);
        merge_answers(best, std::move(answer));
      }
    }
  }

  /// Where messages and reductions cost more than work, fewer devices are faster, which a search for the smallest
  /// bottleneck does not see.
  void on_fewer_devices(std::optional<PlanAnswer>& best) const {
    if (!request_.replicas.empty() || devices_differ(*request_.graph, *request_.cluster)) return;
    for (size_t count = request_.cluster->devices.size() / 2; count > 0 && !is_large(); count /= 2) {
      if (request_.stages && static_cast<size_t>(*request_.stages) > count) return;
      const ir::Cluster part = ir::first_devices(*request_.cluster, static_cast<int>(count));
      PlanRequest rest = rest_of(best);
      rest.cluster = &part;
      const double bound = min_step_of_plans(request_, part);
      if (best && bound >= best->candidates.front().step_seconds) return;
      for (const PlannerEntry* planner : planners_with(&PlannerTraits::asked_on_parts))
        if (Result<PlanAnswer> answer = ask(*planner, rest); answer.ok()) merge_answers(best, std::move(*answer));
    }
  }

  /// Starts from several plans of the other planners: the one that the simulator prefers is not always first by the
  /// closed form.
  void start_from(const PlanAnswer& answer) {
    for (size_t i = 0; i < std::min(kStarts, answer.candidates.size()); ++i)
      starts_.push_back(answer.candidates[i].assignment);
  }

  /// Searches spaces with fewer parallel branches than the graph has, and with recomputation.
  void search_between() {
    if (deadline_.passed()) return;
    const SearchGraph graph = search_graph(*request_.graph, parts_for(*request_.cluster));
    const PlanRequest small = small_request(request_, graph.small.graph);
    std::vector<SearchSpace> spaces;
    const size_t width = widest(graph.tree);
    // Other planners have searched the two ends, one branch and all of them, so on a large graph one width in between
    // has to do.
    std::vector<size_t> choices{1, 2, 3, 4, width / 2, (width + 1) / 2, width};
    if (is_large() || is_narrow(request_)) choices = {std::min<size_t>(2, width)};
    for (size_t lanes : choices) {
      if (lanes < 1 || lanes > width) continue;
      SearchSpace space = space_of_tree(in_lanes(graph.tree, lanes, graph.groups.weight), graph.groups, 0);
      find_shapes(graph.small.graph, space);
      if (lanes_.insert(lanes).second) spaces.push_back(std::move(space));
    }
    const std::vector<double> slacks =
        is_narrow(request_) ? std::vector<double>{1.15} : std::vector<double>{1.05, 1.15, 1.4};
    Candidates small_found(small);
    for (const size_t level : levels_to_price_at(*request_.cluster))
      search_spaces(small, spaces, {.recompute = true, .slacks = slacks, .level = level}, deadline_, small_found);
    for (const PlanCandidate& candidate : small_found.best(2 * kStarts)) {
      ir::Assignment large = expand(graph.small, request_.graph->nodes.size(), candidate.assignment);
      if (starts_.size() < 3 * kStarts) starts_.push_back(large);
      add_expanded(request_, graph.small, candidate.assignment, found_);
    }
  }

  /// The local search, from the best starts by the closed form.
  void climb() {
    Candidates ranked(request_);
    for (const ir::Assignment& start : starts_) ranked.add(start);
    std::vector<PlanCandidate> chosen = different(ranked.best(starts_.size()), starts_to_climb_from());
    const auto is_chosen = [&](const PlanCandidate& c) { return c.assignment == best_of_others_; };
    if (!best_of_others_.choice.empty() && !is_large() && std::ranges::none_of(chosen, is_chosen))
      chosen.push_back({.assignment = best_of_others_});
    std::vector<ir::Assignment> improved(chosen.size());
    run_tasks(chosen.size(), request_.threads, [&](size_t i) {
      Deadline deadline = deadline_;
      PlanRequest request = request_;
      request.evaluate = nullptr;
      improved[i] = climb_from(request, chosen[i].assignment, deadline);
    });
    for (ir::Assignment& assignment : improved) {
      if (!force_in_place(assignment)) continue;
      add_placements(assignment);
      found_.add(std::move(assignment));
    }
  }

  /// The large graph may number its stages in another order than the contracted one, so the replicas are forced again.
  bool force_in_place(ir::Assignment& assignment) const {
    return request_.replicas.empty() ||
           (build_stage_graph(*request_.graph, assignment).ok() && force_replicas(request_, assignment).ok());
  }

  void add_placements(ir::Assignment assignment) {
    size_t replicas = 0;
    for (const ir::StageChoice& choice : assignment.choice) replicas += choice.devices.size();
    if (replicas > request_.cluster->devices.size()) return;  // some share a device
    if (const auto stages = build_stage_graph(*request_.graph, assignment); stages.ok())
      for (const ir::Assignment& other : other_placements(*request_.graph, *request_.cluster, *stages, assignment))
        found_.add(other);
  }

  /// The best `max_plans` of the ranked plans, those that differ in the number of stages or in the micro-batch first:
  /// from equal starts the climbs would end in the same local optimum.
  static std::vector<PlanCandidate> different(const std::vector<PlanCandidate>& ranked, size_t max_plans) {
    std::vector<PlanCandidate> chosen, rest;
    std::set<std::pair<size_t, Samples>> shapes;
    for (const PlanCandidate& candidate : ranked) {
      const auto& choice = candidate.assignment.choice;
      const bool is_new = shapes.insert({choice.size(), choice[ir::StageId(0u)].micro_batch}).second;
      (is_new ? chosen : rest).push_back(candidate);
    }
    chosen.insert(chosen.end(), rest.begin(), rest.end());
    if (chosen.size() > max_plans) chosen.resize(max_plans);
    return chosen;
  }

  const PlanRequest& request_;
  const Stopwatch watch_;
  Deadline deadline_;
  Candidates found_;
  std::vector<ir::Assignment> starts_;
  ir::Assignment best_of_others_;
  std::set<size_t> lanes_;
};

}  // namespace

void merge_answers(std::optional<PlanAnswer>& all, PlanAnswer answer) {
  if (!all) {
    all = std::move(answer);
    return;
  }
  all->objective = std::min(all->objective, answer.objective);
  all->complete = all->complete && answer.complete;
  for (PlanCandidate& candidate : answer.candidates) {
    const auto same = [&](const PlanCandidate& mine) { return mine.assignment == candidate.assignment; };
    if (std::none_of(all->candidates.begin(), all->candidates.end(), same))
      all->candidates.push_back(std::move(candidate));
  }
  std::ranges::stable_sort(all->candidates, is_better);
}

void set_own_objectives(const PlanRequest& request, PlanAnswer& answer) {
  const cost::PlanBound bound = cost::plan_bound(*request.graph, *request.cluster);
  const double min_seconds = min_step_of_plans(request, *request.cluster);
  answer.bound = bound.time_per_sample();
  for (PlanCandidate& candidate : answer.candidates)
    candidate.own = {.objective = candidate.step_seconds, .bound = min_seconds, .unit = "s"};
}

std::vector<Result<PlanAnswer>> search_within_groups(PlanRequest request) {
  const Stopwatch watch;
  request.beside_sequential = false;
  std::vector<Result<PlanAnswer>> answers;
  for (const PlannerEntry* planner : planners_with(&PlannerTraits::asked_on_parts)) {
    const PlanRequest rest = with_time_left(request, watch);
    if (!answers.empty() && rest.time_limit <= 0) break;
    answers.push_back(ask(*planner, rest));
    if (answers.back().ok())
      request.known_step = std::min(request.known_step, answers.back()->candidates.front().step_seconds);
  }
  return answers;
}

Result<PlanAnswer> search_as_asked(const PlanRequest& request) { return AutoPlanner(request).run(); }

}  // namespace graphpipe::partitioner
