#include "driver/pipeline/search_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "driver/launch/process.h"
#include "driver/pipeline/choose.h"
#include "driver/report/search_line.h"
#include "partitioner/min_memory.h"
#include "support/stopwatch.h"

namespace graphpipe::driver {
namespace {

// What the other plan comes to; nothing where it has no schedule after all.
void add_multi_stage(Pipeline& pipeline, ir::Assignment assignment) {
  const auto stages = ir::build_stage_graph(pipeline.priced, assignment);
  if (!stages) return;
  const auto built = scheduler::build_schedule(*stages, pipeline.plan.cluster,
                                               build_options(pipeline.plan.policy, pipeline.priced, pipeline.order));
  if (!built) return;
  pipeline.beside = {.stages = stages->stages.size(),
                     .micro_batch = assignment.choice[ir::StageId(0u)].micro_batch.count,
                     .step_seconds = built->step_seconds()};
  for (const scheduler::DeviceMemory& memory : built->memory)
    pipeline.beside->peak_bytes = std::max(pipeline.beside->peak_bytes, memory.peak.count);
}

/// How long plans are compared by their own code and order where one fits, and where none does so far.
constexpr double kMaxSecondsToCompare = 3, kMaxSecondsToFit = 20;

/// How long the searches of one plan take together, and who hears of the plans that one of them times.
struct Search {
  Stopwatch watch;
  SearchLine* line = nullptr;
  /// The search ranks plans with more memory than devices have: the best of those that fit is not its first.
  bool beyond_bounds = false;
  /// The first plan of the last search fits.
  bool first_fits = false;
};

/// That no plan fits the memory, or that the plan's policy has no order for it, or one that is too long.
bool has_no_schedule(const Status& status) {
  if (status.ok()) return false;
  const Code code = status.problems().front().code;
  return code == Code::kNoFeasiblePlan || code == Code::kLimitExceeded;
}

// Makes the first of the assignments whose code fits the memory the pipeline's plan, or the fastest where the search
// went beyond it. Errors, where none fits: those of the first.
Status take_fitting(Pipeline& pipeline, std::vector<ir::Assignment> assignments, const PlanOptions& options,
                    Search& search) {
  const Stopwatch watch;
  Status first = Ok{};
  std::optional<size_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < assignments.size(); ++i) {
    const bool is_late = (options.time_limit > 0 && search.watch.seconds() > options.time_limit) ||
                         watch.seconds() > (best ? kMaxSecondsToCompare : kMaxSecondsToFit);
    if (i > 0 && (is_late || interrupted())) break;
    pipeline.plan.assignment = assignments[i];
    pipeline.plan.schedule.reset();
    const Status derived = derive(pipeline);
    if (i == 0) first = derived;
    if (i == 0) search.first_fits = derived.ok();
    if (has_no_schedule(derived)) continue;
    if (!derived.ok()) break;
    if (!search.beyond_bounds) return Ok{};
    if (pipeline.built.step_seconds() >= least) continue;
    least = pipeline.built.step_seconds();
    best = i;
  }
  if (!best) return first;
  pipeline.plan.assignment = std::move(assignments[*best]);
  pipeline.plan.schedule.reset();
  return derive(pipeline);
}

/// Of a search: how many times the memory of the devices its planner goes by, and the orders of its plans.
struct MemorySlack {
  double planned = 1, ordered = 1;
};

Status plan_for(Pipeline& pipeline, const PlanOptions& options, MemorySlack slack, Search& search) {
  PlanOptions rest = options;
  // A search that begins when the time is over takes what needs none.
  if (options.time_limit > 0) rest.time_limit = std::max(kMinSeconds, options.time_limit - search.watch.seconds());
  const ir::Cluster& own = pipeline.plan.cluster;
  GP_TRY(Choice choice, choose_assignment(rest, pipeline.priced, ir::with_memory(own, slack.planned),
                                          ir::with_memory(own, slack.ordered), search.line));
  pipeline.search_seconds += choice.search_seconds;
  pipeline.complete = choice.complete;
  pipeline.objective = choice.objective;
  choice.others.insert(choice.others.begin(), std::move(choice.assignment));
  GP_TRY_VOID(take_fitting(pipeline, std::move(choice.others), options, search));
  const bool is_one_stage = search.first_fits && pipeline.plan.assignment.choice.size() == 1;
  if (is_one_stage && choice.multi_stage) add_multi_stage(pipeline, *choice.multi_stage);
  return Ok{};
}

// Planners go by bounds of memory; the code of a plan, which derive() counts, may fit where its bound does not. So much
// too high have bounds been seen to be, mostly and at most; and where the fastest plans of these do not fit, they hide
// slower ones that do, which a search with less slack finds. Where a plan is known, the first of these searches has no
// limit at all: what it finds first is what there is to gain, and often fits.
constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr std::array<MemorySlack, 4> kSlacks = {
    {{kUnlimited, kUnlimited}, {scheduler::kMemoryBoundSlack, scheduler::kMemoryBoundSlack}, {1.7, 1.7}, {1.1, 1.1}}};
/// Planners do not know how many versions of its weights a stage of an asynchronous schedule holds: where these do not
/// fit, plans are searched that leave room for them.
constexpr std::array<MemorySlack, 3> kRoomForVersions = {{{0.75, 1}, {0.5, 1}, {0.35, 1}}};
/// Where a plan is known, those after the first of these searches begin no later than this after all began.
constexpr double kMaxSecondsBeyond = 12;

/// Whether the plan takes up this part of a device's memory, or recomputes to fit in.
bool may_be_limited(const Pipeline& pipeline, double part) {
  // Stages recompute only where memory asks for it.
  return std::ranges::any_of(pipeline.plan.assignment.choice, &ir::StageChoice::recompute) ||
         scheduler::peak_reaches(pipeline.built, pipeline.plan.cluster, part);
}

// Searches once more where devices have so many times the memory, from the plan as it was asked for: the search may
// have passed over faster plans that fit. Keeps the plan that it finds where that fits and is faster.
Status search_beyond_bounds(Pipeline& pipeline, const PlanOptions& options, ir::Plan asked, Search& search,
                            MemorySlack slack) {
  const double step = pipeline.built.step_seconds();
  const partitioner::OwnObjective objective = pipeline.objective;
  ir::Plan known = std::exchange(pipeline.plan, std::move(asked));
  const std::optional<MultiStageAlternative> beside = std::exchange(pipeline.beside, std::nullopt);
  const Status found = plan_for(pipeline, options, slack, search);
  if (found.ok() && pipeline.built.step_seconds() < step) return Ok{};
  if (!found.ok() && found.problems().front().code == Code::kInterrupted) pipeline.complete = false;
  pipeline.plan = std::move(known);
  pipeline.plan.schedule.reset();
  pipeline.beside = beside;
  pipeline.objective = objective;
  return derive(pipeline);
}

}  // namespace

Status search_plan(Pipeline& pipeline, const PlanOptions& options, SearchLine* line) {
  const ir::Plan asked = pipeline.plan;
  // No slack: these bytes are exact.
  GP_TRY_VOID(partitioner::check_min_memory(pipeline.priced, asked.cluster, options.shard_optimizer));
  Search search{.watch = {}, .line = line};
  const Status first = plan_for(pipeline, options, {}, search);
  search.line = nullptr;  // from here on plans are timed that may not fit
  search.beyond_bounds = true;
  search.first_fits = false;  // by its bound; by their code faster ones may
  Status found = first;
  std::vector<MemorySlack> slacks(kSlacks.begin(), kSlacks.end());
  const scheduler::Policy* policy = scheduler::find_policy(asked.policy);
  const bool has_versions = policy != nullptr && policy->asynchronous;
  if (has_versions) slacks.insert(slacks.end(), kRoomForVersions.begin(), kRoomForVersions.end());
  for (const MemorySlack slack : slacks) {
    const bool is_first = slack.planned == kUnlimited;
    if (found.ok()) {
      const double part = is_first ? scheduler::kMemoryLimitedShare : 1 / scheduler::kMemoryBoundSlack;
      // The first plan may fit because it drains more often than others would.
      const bool is_best = search.first_fits && !has_versions;
      if (!pipeline.complete || is_best || !may_be_limited(pipeline, part)) break;
      if (!is_first && search.watch.seconds() > kMaxSecondsBeyond) break;
      GP_TRY_VOID(search_beyond_bounds(pipeline, options, asked, search, slack));
    } else if (has_no_schedule(found) && !is_first) {
      pipeline.plan = asked;
      found = plan_for(pipeline, options, slack, search);
    }
  }
  return found.ok() || !has_no_schedule(found) ? found : first;
}

}  // namespace graphpipe::driver
