#include "driver/pipeline/choose.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "driver/cli/usage.h"
#include "driver/launch/process.h"
#include "driver/pipeline/yardstick.h"
#include "driver/report/search_line.h"
#include "partitioner/auto/planner.h"
#include "partitioner/baselines/shaped_split.h"
#include "partitioner/several_searches.h"
#include "support/stopwatch.h"
#include "support/units.h"

namespace graphpipe::driver {
namespace {

Result<partitioner::ForcedReplicas> parse_replicas(const std::string& flag) {
  const size_t equals = flag.find('=');
  int64_t stage = -1, replicas = 0;
  if (equals == std::string::npos || !read_number(std::string_view(flag).substr(0, equals), stage) ||
      !read_number(std::string_view(flag).substr(equals + 1), replicas) || stage < 0 || stage > 1'000'000 ||
      replicas < 1 || replicas > 4096)
    return usage("--replicas " + flag, "expected STAGE=D with a stage number and at least one replica",
                 "for example --replicas 0=2");
  return partitioner::ForcedReplicas{.stage = static_cast<int>(stage), .replicas = static_cast<int>(replicas)};
}

/// Passes of a step above which the closed form stands for a plan: to simulate one of them takes many seconds.
constexpr int64_t kMaxSimulated = 200'000;

// Why a plan that keeps the rules cannot be used.
std::optional<Diagnostic> refusal_of(const ir::PlanGraph& priced, const ir::Cluster& cluster,
                                     const scheduler::BuildOptions& options, ir::Assignment assignment,
                                     int64_t drain_every) {
  const auto stages = ir::build_stage_graph(priced, assignment);
  if (!stages) return stages.problems().front();
  const auto ordered = scheduler::order_batches(*stages, cluster, options, drain_every);
  return ordered ? std::nullopt : std::optional(ordered.problems().front());
}

// Replicas divide micro-batches unless the policy lets them take whole ones in turn.
ir::Assignment with_turns(ir::Assignment assignment, bool take_turns) {
  for (ir::StageChoice& choice : assignment.choice)
    if (take_turns && choice.devices.size() > 1) choice.mode = ir::ReplicaMode::kRoundRobin;
  return assignment;
}

// Whether the flags leave the cut to us, and the policy asks for a shape that the planners do not make.
bool wants_shape(const PlanOptions& options, const scheduler::Policy& policy) {
  return policy.shape != scheduler::StageShape::kAny && options.plan.empty() && options.replicas.empty() &&
         (options.planner == "auto" || options.planner == "equal-split");
}

Result<partitioner::PlanAnswer> ask_planner(const PlanOptions& options, const scheduler::Policy* policy,
                                            const partitioner::PlanRequest& request, const Stopwatch& watch) {
  if (policy != nullptr && wants_shape(options, *policy))
    return options.planner == "auto" ? partitioner::plan_for_shape(request, policy->shape, watch)
                                     : partitioner::plan_in_shape(request, policy->shape);
  if (policy != nullptr && policy->asynchronous && options.order.drain_every != 1)
    return partitioner::plan_asynchronous(options.planner, request, watch);
  return partitioner::plan(options.planner, request);
}

// What a policy with a stage graph of its own finds, the policy `auto` finds.
void add_shapes(const PlanOptions& options, const partitioner::PlanRequest& request, const Stopwatch& watch,
                partitioner::PlanAnswer& answer) {
  for (const scheduler::Policy& policy : scheduler::all_policies()) {
    if (policy.asynchronous || policy.forward_only || !wants_shape(options, policy) || interrupted()) continue;
    partitioner::PlanRequest rest = partitioner::with_time_left(request, watch);
    rest.known_step = answer.candidates.front().step_seconds;
    Result<partitioner::PlanAnswer> shaped = partitioner::plan_in_shape(rest, policy.shape);
    if (!shaped) continue;  // its number of stages is not the one asked for, or no plan of its shape is shorter
    const auto is_first = [&](const auto& a, const auto& b) { return a.step_seconds < b.step_seconds; };
    auto& best = *std::ranges::min_element(shaped->candidates, is_first);
    if (best.step_seconds < answer.candidates.front().step_seconds)
      answer.candidates.insert(answer.candidates.begin(), std::move(best));
  }
}

/// Plans that are kept for where the best one turns out not to fit.
constexpr size_t kOthers = 64;
/// Actions that a search of orders simulates for each plan that planners compare, and the plans, best first, whose
/// orders are searched to the end when they have been compared.
constexpr int64_t kActionsOfCandidate = 90'000;
constexpr size_t kSearchedPlans = 4;

/// Puts the plan first that is the best of the first few with the orders that `request.evaluate` finds now.
void search_orders(const partitioner::PlanRequest& request, const Stopwatch& watch, partitioner::PlanAnswer& answer) {
  const size_t count = std::min(kSearchedPlans, answer.candidates.size());
  for (size_t i = 0; i < count && count > 1; ++i) {
    if (interrupted() || watch.seconds() > request.time_limit) break;
    partitioner::PlanCandidate& candidate = answer.candidates[i];
    candidate.step_seconds = std::min(candidate.step_seconds, request.evaluate(candidate.assignment));
  }
  std::ranges::stable_sort(answer.candidates, {}, &partitioner::PlanCandidate::step_seconds);
}

}  // namespace

scheduler::BuildOptions ordered_as(const OrderOptions& order) {
  return {
      .backward_order = order.backward == "lifo" ? scheduler::BackwardOrder::kLifo : scheduler::BackwardOrder::kFifo,
      .group = order.group,
      .vertical_sync = order.vertical_sync,
      .update = Samples(order.update)};
}

Status check_order(std::string_view policy, const OrderOptions& order) {
  const scheduler::Policy* known = scheduler::find_policy(policy);
  if (known == nullptr) return Ok{};
  struct Flag {
    const char* name;
    bool given;
    bool scheduler::PolicyChoices::*choice;
  };
  const Flag flags[] = {
      {"--group", order.group != 0, &scheduler::PolicyChoices::group},
      {"--backward", !order.backward.empty(), &scheduler::PolicyChoices::backward_order},
      {"--vertical-sync", order.vertical_sync, &scheduler::PolicyChoices::vertical_sync},
      {"--update", order.update != 0, &scheduler::PolicyChoices::update},
      {"--drain-every", order.drain_every != 0, &scheduler::PolicyChoices::drain_every},
  };
  for (const Flag& flag : flags) {
    if (!flag.given || known->choices.*flag.choice) continue;
    std::string takers;
    for (const scheduler::Policy& other : scheduler::all_policies())
      if (other.choices.*flag.choice) takers += text(takers.empty() ? "" : ", ", other.name);
    return usage(flag.name, text("the policy ", policy, " does not take it"),
                 text("leave it out; policies that take it: ", takers));
  }
  return Ok{};
}

scheduler::BuildOptions build_options(const std::string& policy, const ir::PlanGraph& priced,
                                      const OrderOptions& order) {
  scheduler::BuildOptions options = ordered_as(order);
  options.policy = policy;
  // Clipping is decided when the plan is run; a program that clips nothing skips the norm. Among several updates of one
  // step there is no norm of all gradients.
  const scheduler::Policy* known = scheduler::find_policy(policy);
  options.lowering.norm = known == nullptr || !known->asynchronous;
  options.memory.optimizer_state_per_weight_byte = priced.optimizer_state_per_weight_byte;
  return options;
}

Status take_flags(const PlanOptions& options, partitioner::PlanRequest& request) {
  if (options.stages > 0) request.stages = static_cast<int>(options.stages);
  request.micro_batch_per_stage = options.micro_batch == "per-stage";
  if (options.micro_batch != "auto" && !request.micro_batch_per_stage) {
    int64_t samples = 0;
    if (!read_number(options.micro_batch, samples) || samples < 1 || samples > request.graph->batch.count)
      return usage("--micro-batch " + options.micro_batch,
                   text("expected auto, per-stage, or a number from 1 to the batch of ", request.graph->batch),
                   "for example --micro-batch 2");
    request.micro_batch = Samples(samples);
  }
  for (const std::string& flag : options.replicas) {
    GP_TRY(const partitioner::ForcedReplicas forced, parse_replicas(flag));
    if (std::ranges::find(request.replicas, forced.stage, &partitioner::ForcedReplicas::stage) !=
        request.replicas.end())
      return usage("--replicas " + flag, "another --replicas is about the same stage", "leave one of them out");
    request.replicas.push_back(forced);
  }
  request.shard_optimizer_state = options.shard_optimizer;
  return Ok{};
}

namespace {

/// One planner may have no plan where another has one.
Diagnostics with_way_out(Diagnostics problems, std::string_view planner) {
  if (planner != "auto")
    for (Diagnostic& problem : problems)
      if (problem.code == Code::kNoFeasiblePlan) problem.hint += "; --planner auto asks all planners";
  return problems;
}

}  // namespace

Result<Choice> choose_assignment(const PlanOptions& options, const ir::PlanGraph& priced, const ir::Cluster& cluster,
                                 SearchLine* line) {
  const Stopwatch watch;
  partitioner::PlanRequest request;
  request.graph = &priced;
  request.cluster = &cluster;
  GP_TRY_VOID(take_flags(options, request));
  if (options.time_limit > 0) request.time_limit = options.time_limit;
  request.cancel = &interrupt_flag();
  request.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
  scheduler::BuildOptions building = build_options(options.policy, priced, options.order);
  building.searched_actions = kActionsOfCandidate;
  const scheduler::Policy* policy = scheduler::find_policy(options.policy);
  const bool take_turns = policy != nullptr && policy->takes_turns;
  // More batches make each step of all plans shorter by about as much, and take so much longer to order.
  const int64_t drain_every = std::min(options.order.drain_every, scheduler::kUsualDrainEvery);
  request.evaluate = [&](const ir::Assignment& assignment) {
    const double step =
        step_of(priced, cluster, building, with_turns(assignment, take_turns), kMaxSimulated, drain_every);
    if (line != nullptr) line->timed(step);
    return step;
  };
  request.refusal = [&](const ir::Assignment& assignment) {
    return refusal_of(priced, cluster, building, with_turns(assignment, take_turns), drain_every);
  };
  Result<partitioner::PlanAnswer> asked = ask_planner(options, policy, request, watch);
  if (!asked) return with_way_out(asked.problems(), options.planner);
  partitioner::PlanAnswer answer = *std::move(asked);
  if (options.planner == "auto" && options.policy == "auto") add_shapes(options, request, watch, answer);
  if (options.policy == "auto") {
    building.searched_actions = scheduler::kSearchedActions;
    search_orders(request, watch, answer);
    building.searched_actions = kActionsOfCandidate;
  }
  if (options.planner == "auto") {
    partitioner::PlanRequest bounded = request;
    bounded.flows = policy != nullptr && policy->asynchronous && options.order.drain_every != 1;
    partitioner::set_own_terms(bounded, answer);
  }
  std::optional<ir::Assignment> several_stages;
  if (options.planner == "auto") several_stages = partitioner::best_of_several_stages(request, watch, answer);
  partitioner::PlanCandidate& best = answer.candidates.front();
  const partitioner::OwnTerms busiest_device{.objective = best.objective,
                                             .bound = answer.bound,
                                             .gap = answer.bound > 0 ? best.objective / answer.bound - 1 : 0,
                                             .unit = "s/sample"};
  std::vector<ir::Assignment> others;
  for (size_t i = 1; i <= std::min(kOthers, answer.candidates.size() - 1); ++i)
    others.push_back(with_turns(answer.candidates[i].assignment, take_turns));
  return Choice{.assignment = with_turns(std::move(best.assignment), take_turns),
                .others = std::move(others),
                .terms = best.own.value_or(busiest_device),
                .search_seconds = answer.search_seconds,
                .complete = answer.complete,
                .several_stages = std::move(several_stages)};
}

}  // namespace graphpipe::driver
