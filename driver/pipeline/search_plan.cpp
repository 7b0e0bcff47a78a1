#include "driver/pipeline/search_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "driver/launch/process.h"
#include "driver/pipeline/choose.h"
#include "driver/pipeline/closest_plan.h"
#include "driver/report/search_line.h"
#include "partitioner/batch_stages.h"
#include "partitioner/improve/plan_hill_climb.h"
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
  pipeline.multi_stage = {.stages = stages->stages.size(),
                          .micro_batch = assignment.choice[ir::StageId(0u)].micro_batch.count,
                          .step_seconds = built->step_seconds()};
  for (const scheduler::DeviceMemory& memory : built->memory)
    pipeline.multi_stage->peak_bytes = std::max(pipeline.multi_stage->peak_bytes, memory.peak.count);
}

/// How many nodes plans have together that are compared by their own code and order where one fits, and where none does
/// so far, and at least so many plans. Work is counted, not timed, so that a busy machine has the same plan.
constexpr size_t kNodesToCompare = 8000, kNodesToFit = 50'000, kFewestCompared = 3;
/// How many nodes the plans have that are compared in all searches together where none fits.
constexpr size_t kNodesToFitInAll = 200'000;

/// The number of plans of this graph that have so many nodes together.
size_t plans_with(size_t nodes, const Pipeline& pipeline) {
  return std::max(kFewestCompared, nodes / std::max<size_t>(1, pipeline.priced.nodes.size()));
}

/// A plan that has no schedule, and why.
struct RefusedPlan {
  ir::Assignment assignment;
  Status why;
};

/// How long the searches of one plan take together, and who hears of the plans that one of them times.
struct Search {
  Stopwatch watch;
  SearchLine* line = nullptr;
  /// The search ranks plans with more memory than devices have: the best of those that fit is not its first.
  bool beyond_bounds = false;
  /// The first plan of the last search fits; and the first of all plans that there are.
  bool first_fits = false, best_fits = false;
  /// Nodes of the plans that searches derived which found none with a schedule.
  size_t nodes_to_fit = 0;
  /// The same plans are found with more memory and with less: their own code is counted once.
  std::vector<RefusedPlan> refused = {};
  /// The first of each search.
  std::vector<ir::Assignment> closest = {};
  /// Plans that fit, before faster ones were found with more memory: the last ones, from which a climb may lead
  /// further.
  std::vector<ir::Assignment> passed = {};
};

/// How many of each search are kept; of all, the one that comes closest is told.
constexpr size_t kMaxClosest = 16;

/// That no plan fits the memory, or that the plan's policy has no order for it, or one that is too long.
bool has_no_schedule(const Status& status) {
  if (status.ok()) return false;
  const Code code = status.problems().front().code;
  return code == Code::kNoFeasiblePlan || code == Code::kLimitExceeded;
}

/// Derives the plan, unless it is known to have no schedule.
Status derive_new(Pipeline& pipeline, const ChosenPlan& plan, Search& search) {
  const auto known = std::ranges::find(search.refused, plan.assignment, &RefusedPlan::assignment);
  if (known != search.refused.end()) return known->why;
  pipeline.plan.assignment = plan.assignment;
  pipeline.objective = plan.objective;
  pipeline.plan.schedule.reset();
  Status derived = derive(pipeline);
  if (!has_no_schedule(derived)) return derived;
  search.refused.push_back({plan.assignment, derived});
  search.nodes_to_fit += pipeline.priced.nodes.size();
  return derived;
}

// Makes the first of the plans whose code fits the memory the pipeline's, or the fastest where the search went beyond
// it. Errors, where none fits: those of the first.
Status take_fitting(Pipeline& pipeline, std::vector<ChosenPlan> plans, const PlanOptions& options, Search& search) {
  const size_t known = search.refused.size(), nodes_before = search.nodes_to_fit;
  const auto found = [&] { search.nodes_to_fit = nodes_before; };
  Status first = Ok{};
  std::optional<size_t> best;
  double shortest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < plans.size(); ++i) {
    const bool is_late = (options.time_limit > 0 && search.watch.seconds() > options.time_limit) ||
                         (!best && search.nodes_to_fit >= kNodesToFitInAll) ||
                         i >= plans_with(best ? kNodesToCompare : kNodesToFit, pipeline);
    if (i > 0 && (is_late || interrupted())) break;
    const Status derived = derive_new(pipeline, plans[i], search);
    if (i == 0) first = derived;
    if (i == 0) search.first_fits = derived.ok();
    if (has_no_schedule(derived)) continue;
    if (!derived.ok()) break;
    found();
    if (!search.beyond_bounds) return Ok{};
    if (pipeline.built.step_seconds() >= shortest) continue;
    shortest = pipeline.built.step_seconds();
    best = i;
  }
  for (size_t i = known; i < std::min(known + kMaxClosest, search.refused.size()); ++i)
    search.closest.push_back(search.refused[i].assignment);
  if (!best) return first;
  found();
  pipeline.plan.assignment = std::move(plans[*best].assignment);
  pipeline.objective = plans[*best].objective;
  pipeline.plan.schedule.reset();
  return derive(pipeline);
}

/// Searches where devices have `slack` times the memory, as the planner goes by and the orders of its plans.
Status plan_for(Pipeline& pipeline, const PlanOptions& options, double slack, Search& search, bool thorough = true) {
  PlanOptions rest = options;
  // A search that begins when the time is over takes what needs none.
  if (options.time_limit > 0) rest.time_limit = std::max(kMinSeconds, options.time_limit - search.watch.seconds());
  const ir::Cluster cluster = ir::with_memory(pipeline.plan.cluster, slack);
  GP_TRY(Choice choice, choose_assignment(rest, pipeline.priced, cluster, thorough, search.line));
  pipeline.complete = choice.complete;
  GP_TRY_VOID(take_fitting(pipeline, std::move(choice.plans), options, search));
  const bool is_one_stage = search.first_fits && pipeline.plan.assignment.choice.size() == 1;
  if (is_one_stage && choice.multi_stage) add_multi_stage(pipeline, *choice.multi_stage);
  return Ok{};
}

// Planners go by bounds of memory; the code of a plan, which derive() counts, may fit where its bound does not. So much
// too high have bounds been seen to be, mostly and at most, and rarely a little too low. Where the fastest plans of
// these searches do not fit, they hide slower ones that do, which a search with less slack finds. Where a plan is
// known, a search without any limit comes first: what it finds first is what there is to gain, and often fits.
constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr std::array<double, 5> kSlacks = {scheduler::kMemoryBoundSlack, 1.7, 1.4, 1.1, 0.9};
/// Where no plan fits with any of these: bounds of cells with many branches are further off than others, and of plans
/// that do not fit either, the refusal says what the one that comes closest lacks.
constexpr std::array<double, 4> kFarSlacks = {2.5, 4, 8, kUnlimited};
/// Where a plan is known, those after the first of these searches are as many as have so many nodes together, and begin
/// no later than this after all began.
constexpr size_t kNodesBeyond = 1000;
constexpr double kMaxSecondsBeyond = 60;

bool leaves_recomputation(const PlanOptions& options) {
  return options.recompute == partitioner::recompute_name(partitioner::Recompute::kAuto);
}

bool recomputes(const Pipeline& pipeline) {
  return std::ranges::any_of(pipeline.plan.assignment.choice, &ir::StageChoice::recompute);
}

/// Whether the plan takes up this part of a device's memory, or recomputes to fit in.
bool may_be_limited(const Pipeline& pipeline, const PlanOptions& options, double part) {
  // Where it is left to them, stages recompute only where memory asks for it.
  return (leaves_recomputation(options) && recomputes(pipeline)) ||
         scheduler::peak_reaches(pipeline.built, pipeline.plan.cluster, part);
}

/// Searches once more, from the plan as it was asked for. Keeps the plan that is found where that fits and is faster.
template <typename Find>
Status keep_faster(Pipeline& pipeline, const ir::Plan& asked, Search& search, const Find& find) {
  const double step = pipeline.built.step_seconds();
  const partitioner::OwnObjective objective = pipeline.objective;
  ir::Plan known = std::exchange(pipeline.plan, asked);
  const std::optional<MultiStageAlternative> multi_stage = std::exchange(pipeline.multi_stage, std::nullopt);
  const Status found = find();
  if (found.ok() && pipeline.built.step_seconds() < step) {
    search.passed.push_back(std::move(known.assignment));
    return Ok{};
  }
  if (!found.ok() && found.problems().front().code == Code::kInterrupted) pipeline.complete = false;
  pipeline.plan = std::move(known);
  pipeline.plan.schedule.reset();
  pipeline.multi_stage = multi_stage;
  pipeline.objective = objective;
  return derive(pipeline);
}

/// Whether the planner has narrower searches to be thorough with.
bool asks_others(const PlanOptions& options) {
  const partitioner::PlannerEntry* planner = partitioner::find_planner(options.planner);
  return planner != nullptr && planner->traits.asks_others;
}

/// Nodes times devices, up to which a search without any limit of memory is thorough at once: it takes tenths of a
/// second.
constexpr size_t kWorkToBeThorough = 1000;

size_t work_of(const Pipeline& pipeline) { return pipeline.priced.nodes.size() * pipeline.plan.cluster.devices.size(); }

/// How many searches beyond the bounds a graph of this size gets.
size_t searches_beyond(const Pipeline& pipeline) {
  return 1 + kNodesBeyond / std::max<size_t>(1, pipeline.priced.nodes.size());
}

// From a plan that was found after the first so many of the slacks.
Status search_with_more_memory(Pipeline& pipeline, const PlanOptions& options, const ir::Plan& asked, Search& search,
                               size_t tried) {
  std::vector<double> slacks(kSlacks.begin() + static_cast<std::ptrdiff_t>(tried), kSlacks.end());
  slacks.insert(slacks.begin(), kUnlimited);
  slacks.resize(std::min(slacks.size(), searches_beyond(pipeline)));
  for (const double slack : slacks) {
    const bool is_first = slack == kUnlimited;
    const double part = is_first ? scheduler::kMemoryLimitedShare : 1 / scheduler::kMemoryBoundSlack;
    if (!pipeline.complete || !may_be_limited(pipeline, options, part)) break;
    if (!is_first && search.watch.seconds() > kMaxSecondsBeyond) break;
    if (slack < 1) break;
    // The search may have passed over faster plans that fit. Without any limit a quick one tells whether there are any.
    const auto best_fits = [&](bool thorough) -> Result<bool> {
      search.first_fits = false;
      const auto find = [&] { return plan_for(pipeline, options, slack, search, thorough); };
      GP_TRY_VOID(keep_faster(pipeline, asked, search, find));
      // The first plan of an asynchronous policy may fit because it drains more often than others would.
      const scheduler::Policy* policy = scheduler::find_policy(asked.policy);
      return is_first && search.first_fits && (policy == nullptr || !policy->asynchronous);
    };
    const bool is_quick = is_first && asks_others(options) && work_of(pipeline) > kWorkToBeThorough;
    const double known = pipeline.built.step_seconds();
    GP_TRY(search.best_fits, best_fits(!is_quick));
    if (is_quick && pipeline.built.step_seconds() < known) {
      GP_TRY(search.best_fits, best_fits(true));
    }
    if (search.best_fits) break;
  }
  return Ok{};
}

/// Plans near one that was found whose own memory is counted, as many as have so many nodes together, and how long that
/// takes at most; and from how many plans.
constexpr int64_t kMaxClimbed = 200;
constexpr size_t kNodesToClimb = 40'000, kMaxClimbs = 3;
constexpr double kMaxSecondsToClimb = 60;

// Single moves from the plan that was found, by the step and the memory of each one's code: a node over a boundary may
// be what a bound says does not fit, and lets twice as many samples be in flight.
Status climb_by_code(Pipeline& pipeline, const PlanOptions& options, const Search& search) {
  const ir::PlanGraph graph = as_held(pipeline);
  const ir::Cluster roomy = ir::with_memory(pipeline.plan.cluster, kUnlimited);
  partitioner::PlanRequest request;
  request.graph = &graph;
  request.cluster = &roomy;
  request.without_flush = scheduler::find_policy(options.policy)->asynchronous && options.order.drain_every != 1;
  GP_TRY_VOID(take_flags(options, request));
  const auto take = [&](const ir::Assignment& assignment) {
    pipeline.plan.assignment = assignment;
    pipeline.plan.schedule.reset();
    return derive(pipeline);
  };
  request.evaluate = [&](const ir::Assignment& assignment) {
    return take(assignment).ok() ? pipeline.built.step_seconds() : kUnlimited;
  };
  const double left = options.time_limit > 0 ? options.time_limit - search.watch.seconds() : kUnlimited;
  Deadline deadline(std::clamp(left, 0.0, kMaxSecondsToClimb), &interrupt_flag());
  std::vector<ir::Assignment> starts{pipeline.plan.assignment};
  for (size_t i = search.passed.size(); i > 0 && starts.size() < kMaxClimbs; --i)
    starts.push_back(search.passed[i - 1]);
  const auto moves = std::min(kMaxClimbed, static_cast<int64_t>(plans_with(kNodesToClimb / starts.size(), pipeline)));
  ir::Assignment best = starts.front();
  double shortest = pipeline.built.step_seconds();
  for (const ir::Assignment& start : starts) {
    ir::Assignment found = partitioner::hill_climb(request, start, moves, deadline);
    if (!take(found).ok() || pipeline.built.step_seconds() >= shortest) continue;
    shortest = pipeline.built.step_seconds();
    best = std::move(found);
  }
  if (interrupted() || (left < kMaxSecondsToClimb && deadline.passed())) pipeline.complete = false;
  if (best.choice.size() > 1) pipeline.multi_stage.reset();
  return take(best);
}

/// Sizes of micro-batches that are tried on the plan that was found: as many as have so many nodes together.
constexpr size_t kNodesToSize = 20'000;
/// And as many as have about so many passes of stages over micro-batches together.
constexpr int64_t kPassesToSize = 200'000;
/// Of one stage, which has no pipeline that could end sooner.
constexpr int64_t kSizesOfOneStage = 24;

/// The size of all stages but those that work on the whole batch; nothing where they differ.
std::optional<Samples> common_size(const ir::Assignment& assignment, const IdMap<ir::StageId, bool>& of_batch) {
  std::optional<Samples> size;
  for (const ir::StageId stage : ids<ir::StageId>(of_batch.size())) {
    const Samples own = assignment.choice[stage].micro_batch;
    if (of_batch[stage]) continue;
    if (size && *size != own) return std::nullopt;
    size = own;
  }
  return size;
}

// The same stages and devices with other micro-batches. Planners try sizes that divide the batch nearly evenly; a last
// micro-batch that is much smaller than the others may end the pipeline sooner.
Status scan_sizes(Pipeline& pipeline, const PlanOptions& options, const Search& search) {
  const auto of_batch = partitioner::batch_stages(pipeline.priced, pipeline.plan.assignment);
  const std::optional<Samples> common = common_size(pipeline.plan.assignment, of_batch);
  if (!common) return Ok{};
  ir::Assignment best = pipeline.plan.assignment;
  double shortest = pipeline.built.step_seconds();
  const auto try_size = [&](int64_t size) {
    pipeline.plan.assignment = best;
    for (const ir::StageId stage : ids<ir::StageId>(of_batch.size()))
      if (!of_batch[stage]) pipeline.plan.assignment.choice[stage].micro_batch = Samples(size);
    pipeline.plan.schedule.reset();
    if (!derive(pipeline).ok() || pipeline.built.step_seconds() >= shortest) return;
    shortest = pipeline.built.step_seconds();
    best = pipeline.plan.assignment;
  };
  const int64_t first = ceil_div(common->count, 2), last = std::min(pipeline.plan.batch.count, 2 * common->count);
  const int64_t passes = static_cast<int64_t>(of_batch.size()) * ceil_div(pipeline.plan.batch.count, common->count);
  const int64_t max_sizes =
      of_batch.size() == 1 ? kSizesOfOneStage : static_cast<int64_t>(plans_with(kNodesToSize, pipeline));
  const int64_t tried = std::max(static_cast<int64_t>(kFewestCompared), std::min(max_sizes, kPassesToSize / passes));
  const int64_t stride = ceil_div(last - first + 1, tried);
  for (int64_t size = first; size <= last && !interrupted(); size += stride) {
    if (options.time_limit > 0 && search.watch.seconds() > options.time_limit) pipeline.complete = false;
    if (!pipeline.complete) break;
    if (size != common->count) try_size(size);
  }
  if (stride > 1 && pipeline.complete && !interrupted()) try_size(last);
  if (interrupted()) pipeline.complete = false;
  pipeline.plan.assignment = std::move(best);
  pipeline.plan.schedule.reset();
  return derive(pipeline);
}

/// Whether the user leaves the plan to `auto` and its stages to the planner.
bool may_climb(const PlanOptions& options) {
  const scheduler::Policy* policy = scheduler::find_policy(options.policy);
  return asks_others(options) && policy != nullptr && policy->shape == ir::StageShape::kAny && !policy->takes_turns;
}

/// Whether the planner weighs for each stage whether it recomputes: `auto`, but among stages of a policy's own shape.
bool weighs_recomputation(const partitioner::PlannerEntry& planner, const PlanOptions& options) {
  const scheduler::Policy* policy = scheduler::find_policy(options.policy);
  return planner.traits.asks_others && (policy == nullptr || policy->shape == ir::StageShape::kAny);
}

/// The same request with recomputation everywhere, and nowhere, where it is left to a planner that does not weigh both.
std::vector<PlanOptions> other_ways(const PlanOptions& options) {
  const partitioner::PlannerEntry* planner = partitioner::find_planner(options.planner);
  if (!leaves_recomputation(options) || planner == nullptr || planner->traits.is_given ||
      weighs_recomputation(*planner, options))
    return {};
  std::vector<PlanOptions> ways(2, options);
  ways[0].recompute = partitioner::recompute_name(partitioner::Recompute::kAlways);
  ways[1].recompute = partitioner::recompute_name(partitioner::Recompute::kNever);
  return ways;
}

// The plan of one request: where none fits, beyond the planner's bounds of memory; where memory limits it, there too.
// Errors, where none fits: those of the first search.
Status search_one_way(Pipeline& pipeline, const PlanOptions& options, const ir::Plan& asked, Search& search) {
  search.beyond_bounds = false;
  const Status first = plan_for(pipeline, options, 1, search);
  search.line = nullptr;  // from here on plans are timed that may not fit
  search.beyond_bounds = true;
  Status found = first;
  // Quick searches tell where plans begin to fit; there a thorough one follows.
  size_t tried = 0;
  for (const std::span<const double> slacks : {std::span<const double>(kSlacks), std::span<const double>(kFarSlacks)})
    for (const double slack : slacks) {
      if (!has_no_schedule(found) || interrupted()) break;
      ++tried;
      pipeline.plan = asked;
      found = plan_for(pipeline, options, slack, search, false);
      if (!found.ok() || !asks_others(options)) continue;
      GP_TRY_VOID(keep_faster(pipeline, asked, search, [&] { return plan_for(pipeline, options, slack, search); }));
    }
  if (!found.ok()) return has_no_schedule(found) ? first : found;
  return search_with_more_memory(pipeline, options, asked, search, std::min(tried, kSlacks.size()));
}

/// The refusal with what the plan that comes closest lacks, where a plan was found that lacks something.
Status with_lack(Status refusal, Pipeline& pipeline, const Search& search) {
  Diagnostics problems = refusal.problems();
  if (problems.front().code != Code::kNoFeasiblePlan) return refusal;
  const std::optional<Lack> lack = smallest_lack(pipeline, search.closest);
  if (!lack || lack->bytes <= Bytes(0)) return refusal;
  problems.front().message =
      text("no plan was found that fits the devices: the one that comes closest needs ",
           partitioner::in_words(static_cast<double>(lack->bytes.count)), " more on device ", lack->device);
  return problems;
}

Status check_divisible(const Pipeline& pipeline, const PlanOptions& options) {
  const wire::OptimizerEntry& optimizer = wire::optimizer_named(pipeline.plan.spec.optimizer);
  if (!options.shard_optimizer || optimizer.updates_apart) return Ok{};
  return Diagnostic{.code = Code::kUsage,
                    .message = text("--shard-optimizer: optimizer ", optimizer.name,
                                    " updates an element from others too, so that replicas cannot divide its state"),
                    .hint = "leave the flag out, or take one of: " + wire::divisible_optimizer_names()};
}

}  // namespace

Status search_plan(Pipeline& pipeline, const PlanOptions& options, SearchLine* line) {
  GP_TRY_VOID(check_divisible(pipeline, options));
  const ir::Plan asked = pipeline.plan;
  // No slack: these bytes are exact.
  GP_TRY_VOID(partitioner::check_min_memory(pipeline.priced, asked.cluster, options.shard_optimizer));
  Search search{.watch = {}, .line = line};
  Status found = search_one_way(pipeline, options, asked, search);
  const auto is_limited = [&](double part) { return may_be_limited(pipeline, options, part); };
  for (const PlanOptions& way : other_ways(options)) {
    if (interrupted() ||
        !(found.ok() ? is_limited(scheduler::kMemoryLimitedShare) && pipeline.complete : has_no_schedule(found)))
      break;
    const auto search_way = [&] { return search_one_way(pipeline, way, asked, search); };
    if (found.ok()) {
      GP_TRY_VOID(keep_faster(pipeline, asked, search, search_way));
    } else {
      pipeline.plan = asked;
      if (Status other = search_way(); !has_no_schedule(other)) found = std::move(other);
    }
  }
  if (!found.ok()) return has_no_schedule(found) ? with_lack(found, pipeline, search) : found;
  if (!search.best_fits && is_limited(1 / scheduler::kMemoryBoundSlack) && pipeline.complete && may_climb(options))
    GP_TRY_VOID(climb_by_code(pipeline, options, search));
  const bool is_size_free = options.micro_batch == "auto" || options.micro_batch == "per-stage";
  if (may_climb(options) && is_size_free && pipeline.complete) GP_TRY_VOID(scan_sizes(pipeline, options, search));
  // Of all that was tried: the orders and the code of candidates, too, and other sizes of their micro-batches.
  pipeline.search_seconds = search.watch.seconds();
  // What `auto` goes by, of the plan as it is in the end.
  if (asks_others(options)) pipeline.objective.objective = pipeline.built.step_seconds();
  return Ok{};
}

}  // namespace graphpipe::driver
