#include "driver/pipeline/choose.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "driver/cli/usage.h"
#include "driver/launch/process.h"
#include "driver/report/search_line.h"
#include "partitioner/plan_for_policy.h"
#include "scheduler/step_of_plan.h"
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

/// Plans that are kept for where the best one turns out not to fit.
constexpr size_t kOthers = 255;

bool tries_other_policies(const PlanOptions& options) {
  const scheduler::Policy* policy = scheduler::find_policy(options.policy);
  return policy != nullptr && policy->tries_others;
}

// What the policy that the flags name, or `auto`, asks of plans.
partitioner::PolicyNeeds needs_of(const PlanOptions& options) {
  partitioner::PolicyNeeds needs;
  if (const scheduler::Policy* policy = scheduler::find_policy(options.policy)) {
    needs.shape = policy->shape;
    needs.takes_turns = policy->takes_turns;
    needs.without_flush = policy->asynchronous && options.order.drain_every != 1;
  }
  if (tries_other_policies(options))
    for (const scheduler::Policy& policy : scheduler::all_policies())
      if (!policy.asynchronous && !policy.forward_only &&
          std::ranges::find(needs.shapes, policy.shape) == needs.shapes.end())
        needs.shapes.push_back(policy.shape);
  return needs;
}

}  // namespace

scheduler::BuildOptions ordered_as(const OrderOptions& order) {
  return {.choices = {.backward_order =
                          order.backward == "lifo" ? scheduler::BackwardOrder::kLifo : scheduler::BackwardOrder::kFifo,
                      .group = order.group,
                      .vertical_sync = order.vertical_sync,
                      .update = Samples(order.update)}};
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
  request.recompute = partitioner::recompute_of_name(options.recompute).value();
  return Ok{};
}

namespace {

/// What no plan can make good, before a search. The scheduler knows what else an update has to fit.
Status check_update(const OrderOptions& order, Samples batch) {
  const std::string flag = text("--update ", order.update);
  if (order.update > batch.count)
    return usage(flag, text("updates of ", order.update, " samples are longer than the batch of ", batch),
                 text("take updates of at most ", batch, " samples, or a larger --batch"));
  // Without the flag a plan of few micro-batches drains after several batches.
  const bool flows =
      order.drain_every > 1 || (order.drain_every == 0 && 2 * batch.count <= scheduler::kMicroBatchesPerDrain);
  if (order.update > 0 && flows && batch.count % order.update != 0)
    return usage(flag,
                 text("updates of ", order.update, " samples do not divide the batch of ", batch,
                      ", so that one would be of two steps"),
                 "take updates that divide the batch, or --drain-every 1");
  return Ok{};
}

/// Refuses more stages than devices where the policy runs one on each.
Status check_stages(const PlanOptions& options, const partitioner::PolicyNeeds& needs, int64_t devices) {
  if (options.stages <= devices || needs.shape != ir::StageShape::kAny || !needs.shapes.empty()) return Ok{};
  std::string others;
  for (const scheduler::Policy& policy : scheduler::all_policies())
    if (policy.shape == ir::StageShape::kLoop || policy.shape == ir::StageShape::kV) others += text(policy.name, ", ");
  return usage(text("--stages ", options.stages),
               text("policy ", options.policy, " runs one stage on a device, of which there are ", devices),
               text("ask for ", devices, " at most, or pass --policy with one that runs several: ", others, "auto"));
}

/// One planner may have no plan where another has one.
Diagnostics with_way_out(Diagnostics problems, std::string_view planner) {
  const partitioner::PlannerEntry* entry = partitioner::find_planner(planner);
  if (entry == nullptr || !entry->traits.asks_others)
    for (Diagnostic& problem : problems)
      if (problem.code == Code::kNoFeasiblePlan) problem.hint += "; --planner auto asks all planners";
  return problems;
}

}  // namespace

Result<Choice> choose_assignment(const PlanOptions& options, const ir::PlanGraph& priced, const ir::Cluster& cluster,
                                 bool thorough, SearchLine* line) {
  const ir::PlanGraph graph = scheduler::with_versions_of(options.policy, options.order.vertical_sync, priced);
  partitioner::PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  GP_TRY_VOID(take_flags(options, request));
  GP_TRY_VOID(check_update(options.order, graph.batch));
  partitioner::PolicyNeeds needs = needs_of(options);
  GP_TRY_VOID(check_stages(options, needs, std::ssize(cluster.devices)));
  if (options.time_limit > 0) request.time_limit = options.time_limit;
  request.cancel = &interrupt_flag();
  request.thorough = thorough;
  request.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
  // More batches make each step of all plans shorter by about as much, and take so much longer to order.
  const int64_t drain_every = std::min(options.order.drain_every, scheduler::kUsualDrainEvery);
  const scheduler::BuildOptions to_end = build_options(options.policy, graph, options.order);
  scheduler::BuildOptions building = to_end;
  building.searched_actions = scheduler::kSearchedActionsOfCandidate;
  building.is_over = [&request, watch = Stopwatch()] {
    return request.cancel->load() || watch.seconds() > request.time_limit;
  };
  const auto timed_by = [&](const scheduler::BuildOptions& build) {
    return [&, drain_every](const ir::Assignment& assignment) {
      const double step =
          scheduler::step_of_plan(graph, cluster, build, assignment, scheduler::kMaxSimulated, drain_every);
      if (line != nullptr) line->timed(step);
      return step;
    };
  };
  request.evaluate = timed_by(building);
  request.refusal = [&](const ir::Assignment& assignment) {
    return scheduler::refusal_of_plan(graph, cluster, building, assignment, drain_every);
  };
  if (tries_other_policies(options)) needs.evaluate_to_end = timed_by(to_end);
  Result<partitioner::PlansForPolicy> found = partitioner::plan_for_policy(options.planner, request, needs);
  if (!found) return with_way_out(found.problems(), options.planner);
  partitioner::PlanAnswer& answer = found->answer;
  std::vector<ChosenPlan> plans;
  for (size_t i = 0; i < std::min(kOthers + 1, answer.candidates.size()); ++i) {
    partitioner::PlanCandidate& candidate = answer.candidates[i];
    const partitioner::OwnObjective busiest_device{
        .objective = candidate.objective, .bound = answer.bound, .unit = "s/sample"};
    plans.push_back({std::move(candidate.assignment), candidate.own.value_or(busiest_device)});
  }
  return Choice{.plans = std::move(plans),
                .search_seconds = answer.search_seconds,
                .complete = answer.complete,
                .multi_stage = std::move(found->multi_stage)};
}

}  // namespace graphpipe::driver
