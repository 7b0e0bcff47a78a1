#include "driver/pipeline/given_plan.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "driver/cli/usage.h"
#include "driver/launch/digest.h"
#include "driver/launch/linked_file.h"
#include "driver/pipeline/model_spec.h"
#include "files/cluster.h"
#include "files/plan.h"
#include "partitioner/planner.h"
#include "passes/losses/registry.h"
#include "scheduler/policies/list_rule.h"
#include "scheduler/policies/policies.h"

namespace graphpipe::driver {
namespace {

std::string kind_of_run(const std::string& policy) { return runs_forwards_only(policy) ? "forwards only" : "training"; }

// Before the model is read as this policy asks, since what is wrong with that would be said of the plan.
Status check_same_kind(const ir::Plan& given, const std::string& policy) {
  if (given.model_digest.empty() || kind_of_run(given.policy) == kind_of_run(policy)) return Ok{};
  return other_option("--policy", kind_of_run(given.policy), kind_of_run(policy));
}

// A plan numbers the nodes of a graph: one that was made under other options numbers other nodes. A plan written by
// hand names no model, so nothing is known of the options that its author had in mind.
Status check_same_options(const ir::Plan& given, const ir::Plan& now) {
  if (Diagnostics problems = spec_differences(given.spec, now.spec); !problems.empty()) return problems;
  return Ok{};
}

// The plan's schedule stands where no flag asks for another order.
bool asks_for_order(const ir::Plan& given, const Options& options) {
  constexpr const char* kFlags[] = {"--policy", "--group",       "--backward", "--vertical-sync",
                                    "--update", "--drain-every", "--order"};
  return std::ranges::any_of(kFlags, [&](const std::string_view flag) {
    const bool says_the_same = flag == "--policy" && options.plan.policy == given.policy;
    return options.given.contains(std::string(flag)) && !says_the_same;
  });
}

Status check_batch(const ir::Plan& given, const Options& options) {
  if (!given.schedule || options.training.batch == given.batch.count) return Ok{};
  return usage(text("--batch ", options.training.batch),
               text("the plan file has a schedule of ", given.batch.count, " samples"),
               "leave the flag out, or delete the schedule field of the plan");
}

}  // namespace

Diagnostic other_profile(const std::string& path) {
  return Diagnostic{.code = Code::kBadProfile,
                    .origin = ModelText(path),
                    .message = "the profile is not the one that the plan was priced with: its digest differs",
                    .hint = "make the plan again with `graphpipe plan --profile`, or put the old profile back"};
}

Diagnostic other_model(const ir::Plan& plan) {
  return Diagnostic{.code = Code::kBadPlan,
                    .origin = plan.spec.path,
                    .message = "the model is not the one that the plan was made for: its digest differs",
                    .hint = "make the plan again with `graphpipe plan`"};
}

Status check_names(const ir::Plan& plan, const std::string& path) {
  const auto unknown = [&](const char* field, const std::string& name) {
    return Diagnostic{
        .code = Code::kBadPlan,
        .origin = ModelText(path),
        .message = text("there is no ", field, " ", quoted(ModelText(name))),
        .hint = text("correct the field ", field, ": `graphpipe plan --help` lists the names at --", field)};
  };
  if (!plan.policy.empty() && plan.policy != scheduler::kGivenOrder && scheduler::find_policy(plan.policy) == nullptr)
    return unknown("policy", plan.policy);
  if (!plan.planner.empty() && partitioner::find_planner(plan.planner) == nullptr)
    return unknown("planner", plan.planner);
  return Ok{};
}

Diagnostics blaming_file(Diagnostics problems, const Options& asked) {
  if (asked.plan.plan.empty()) return problems;
  for (Diagnostic& problem : problems) {
    const std::string& origin = problem.origin.raw();
    const std::string flag = origin.substr(0, origin.find(' '));
    if (problem.code != Code::kUsage || !flag.starts_with("--") || asked.given.contains(flag)) continue;
    problem.message =
        text("as ", quoted(problem.origin), " the plan's fields ask for what cannot be: ", problem.message);
    problem.hint = "correct the field of the plan, or make it again with `graphpipe plan`";
    problem.origin = ModelText(plan_file_of(asked.plan.plan));
    problem.code = Code::kBadPlan;
  }
  return problems;
}

Status check_labels(const ir::Plan& given, const ir::PlanGraph& priced) {
  if (given.labels.empty() || given.labels.size() != priced.nodes.size()) return Ok{};
  for (const ir::PlanNodeId node : priced.node_ids()) {
    if (given.labels[node] == priced.nodes[node].label) continue;
    return Diagnostic{
        .code = Code::kBadPlan,
        .origin = given.labels[node],
        .message = text("the plan calls node ", node.index(), " so, here it is ", quoted(priced.nodes[node].label)),
        .hint = "give what the plan was made for, or correct the label, or leave all labels out"};
  }
  return Ok{};
}

std::string machines_digest(const ir::Cluster& cluster) { return sha256_of_text(files::print_cluster(cluster)); }

std::optional<Diagnostic> edited_machines(const ir::Plan& plan) {
  if (plan.cluster_digest.empty() || plan.cluster_digest == machines_digest(plan.cluster)) return std::nullopt;
  return Diagnostic{.code = Code::kBadPlan,
                    .severity = Severity::kNote,
                    .origin = ModelText("cluster"),
                    .message = text("the plan's machines have other numbers than those that it was made for: ",
                                    "times are those of the new numbers, stages and order those for the old ones"),
                    .hint = "`graphpipe plan MODEL --cluster FILE` plans for machines of such numbers"};
}

Diagnostics of_file(Diagnostics problems, const std::string& path) {
  for (Diagnostic& problem : problems)
    if (problem.origin.empty()) problem.origin = ModelText(path);
  return problems;
}

namespace {

/// The samples of the micro-batch that this one lies in, or of the replica's part of it, as the stage divides the
/// batch.
wire::SampleRange said_range(const ir::Plan& plan, const ir::Action& action) {
  const ir::StageChoice& choice = plan.assignment.choice[ir::StageId(static_cast<size_t>(action.stage))];
  const int64_t batch = plan.batch.count, size = choice.micro_batch.count;
  const int64_t begin = action.range.first / batch * batch, place = action.range.first % batch / size * size;
  const int64_t samples = std::min(size, batch - place), first = begin + place;
  if (choice.mode == ir::ReplicaMode::kRoundRobin) return {first, first + samples};
  const auto replicas = static_cast<int64_t>(choice.devices.size());
  return {first + action.replica * samples / replicas, first + (action.replica + 1) * samples / replicas};
}

constexpr const char* kEditHint = "remove the plan's schedule, so that the policy orders it anew, or write back the ";

/// The forwards and backwards of the replica of a stage, in the order of its device.
using PassOps = std::vector<ir::ActionOp>;

std::map<ir::StageId, PassOps> passes_of(const ir::Program& program) {
  std::map<ir::StageId, PassOps> passes;
  for (const ir::Action& action : program.actions)
    if (action.op == ir::ActionOp::kForward || action.op == ir::ActionOp::kBackward)
      passes[ir::StageId(static_cast<size_t>(action.stage))].push_back(action.op);
  return passes;
}

/// Whether they are what the policy kfkb makes of this k, after as many forwards as these begin with.
bool alternate_by(const PassOps& ops, int64_t k) {
  const auto count = [&](ir::ActionOp op) { return static_cast<size_t>(std::ranges::count(ops, op)); };
  const std::vector<ir::Action> forwards(count(ir::ActionOp::kForward), {.op = ir::ActionOp::kForward}),
      backwards(count(ir::ActionOp::kBackward), {.op = ir::ActionOp::kBackward});
  const auto warm_up = std::ranges::find(ops, ir::ActionOp::kBackward) - ops.begin();
  const auto list = scheduler::action_list(forwards, backwards, {.warm_up = warm_up, .k = k});
  return std::ranges::equal(list, ops, {}, &ir::Action::op);
}

/// The k that leads to this order; nothing for one that was written by hand. A round at the end may be cut short, so it
/// shows in the first backwards or in the forwards behind them.
std::optional<int64_t> shown_k(const PassOps& ops) {
  const auto backward = std::ranges::find(ops, ir::ActionOp::kBackward);
  const auto forward = std::find(backward, ops.end(), ir::ActionOp::kForward);
  const auto next = std::find(forward, ops.end(), ir::ActionOp::kBackward);
  for (const int64_t k : {forward - backward, next - forward})
    if (k > 0 && alternate_by(ops, k)) return k;
  return std::nullopt;
}

Diagnostic other_samples(const ir::Plan& plan, int64_t found) {
  const bool drains = plan.drain_every > 1;
  return {.code = Code::kBadPlan,
          .origin = ModelText(drains ? "batch, drain_every" : "batch"),
          .message = text("the plan's schedule is of ", found, " samples, which are not ",
                          drains ? text(plan.drain_every, " batches of ") : std::string(), plan.batch),
          .hint = text(kEditHint, "number")};
}

/// Whether the schedule is of as many samples, and repeats the forwards of those stages, as the plan says.
Status check_extent(const ir::Plan& plan) {
  int64_t samples = 0;
  IdSet<ir::StageId> repeated(plan.assignment.choice.size()), trained(plan.assignment.choice.size());
  for (const ir::Program& program : plan.schedule->programs)
    for (const ir::Action& action : program.actions) {
      const auto stage = static_cast<size_t>(action.stage);
      if (!ir::is_compute(action.op) || stage >= plan.assignment.choice.size()) continue;
      samples = std::max(samples, action.range.last);
      if (action.op == ir::ActionOp::kRecompute) repeated.insert(ir::StageId(stage));
      else if (action.op != ir::ActionOp::kForward) trained.insert(ir::StageId(stage));
    }
  if (samples != plan.batch.count * plan.drain_every) return other_samples(plan, samples);
  for (const ir::StageId stage : ids<ir::StageId>(plan.assignment.choice.size())) {
    const bool said = plan.assignment.choice[stage].recompute, found = repeated.contains(stage);
    if (said == found || !trained.contains(stage)) continue;
    return Diagnostic{.code = Code::kBadPlan,
                      .origin = ModelText(text("stages[", stage, "].recompute")),
                      .message = text("it is ", said ? "true" : "false", ", and the plan's schedule ",
                                      found ? "repeats forwards" : "repeats no forward", " of the stage"),
                      .hint = text(kEditHint, "field")};
  }
  return Ok{};
}

/// Of schedules of kfkb.
Status check_rounds(const ir::Plan& plan) {
  if (plan.schedule->policy != "kfkb") return Ok{};
  for (const ir::Program& program : plan.schedule->programs)
    for (const auto& [stage, ops] : passes_of(program)) {
      if (stage.index() >= plan.assignment.choice.size()) continue;
      const int64_t said = plan.assignment.choice[stage].k;
      if (alternate_by(ops, said)) continue;
      const std::optional<int64_t> k = shown_k(ops);
      if (!k) continue;
      return Diagnostic{.code = Code::kBadPlan,
                        .origin = ModelText(text("stages[", stage, "].k")),
                        .message = text("it is ", said, ", and in the plan's schedule it is ", *k,
                                        ": so many forwards and backwards take turns on device ", program.device),
                        .hint = text(kEditHint, "number")};
    }
  return Ok{};
}

}  // namespace

Status check_edits(const ir::Plan& plan) {
  const scheduler::Policy* policy = scheduler::find_policy(plan.policy);
  const bool is_of_auto = policy != nullptr && policy->tries_others && !ir::is_asynchronous(*plan.schedule);
  if (plan.schedule->policy != plan.policy && !is_of_auto)
    return Diagnostic{.code = Code::kBadPlan,
                      .origin = ModelText("policy"),
                      .message = text("it is ", quoted(ModelText(plan.policy)), ", and the plan's schedule is one of ",
                                      quoted(ModelText(plan.schedule->policy))),
                      .hint = text(kEditHint, "name")};
  GP_TRY_VOID(check_extent(plan));
  for (const ir::Program& program : plan.schedule->programs)
    for (const ir::Action& action : program.actions) {
      const auto stage = static_cast<size_t>(action.stage);
      if (action.op != ir::ActionOp::kForward || stage >= plan.assignment.choice.size()) continue;
      if (action.range == said_range(plan, action)) continue;
      const ir::StageChoice& choice = plan.assignment.choice[ir::StageId(stage)];
      const std::string replicas =
          choice.devices.size() == 1
              ? ""
              : text(", of ", choice.devices.size(), " replicas that ",
                     choice.mode == ir::ReplicaMode::kSplit ? "divide each" : "take turns (replica_mode)");
      return Diagnostic{.code = Code::kBadPlan,
                        .origin = ModelText(text("stages[", stage, "].micro_batch")),
                        .message = text("it is ", choice.micro_batch, replicas, ", and the plan's schedule runs ",
                                        action.range.size(), " samples together: ", ir::print_action(action),
                                        " on device ", program.device),
                        .hint = text(kEditHint, "number")};
    }
  return check_rounds(plan);
}

bool execute_as(ir::Plan& given, std::string_view execution) {
  const std::optional<ir::Execution> wanted = ir::execution_of_name(execution);
  if (!wanted || *wanted == given.execution) return false;
  given.execution = *wanted;
  given.schedule.reset();
  return true;
}

Result<GivenPlan> GivenPlan::read(const Options& options) {
  GivenPlan given;
  if (options.plan.plan.empty()) return given;
  given.path_ = plan_file_of(options.plan.plan);
  GP_TRY(given.plan_, files::read_plan(given.path_));
  GP_TRY_VOID(check_names(*given.plan_, given.path_));
  if (!given.plan_->spec.loss.kind.empty()) GP_TRY_VOID(given.named(passes::check_loss(given.plan_->spec.loss)));
  execute_as(*given.plan_, options.plan.execute);
  if (options.given.contains("--policy")) GP_TRY_VOID(check_same_kind(*given.plan_, options.plan.policy));
  if (asks_for_order(*given.plan_, options)) given.plan_->schedule.reset();
  return given;
}

Options GivenPlan::completed(Options options) const {
  if (!plan_) return options;
  const auto is_free = [&](const char* flag) { return !options.given.contains(flag); };
  if (is_free("--batch")) options.training.batch = plan_->batch.count;
  if (is_free("--seed")) options.training.seed = plan_->seed;
  if (is_free("--threads")) options.training.threads = plan_->threads;
  // An order that was written by hand has no policy to order the stages anew.
  if (is_free("--policy") && !plan_->policy.empty() && plan_->policy != scheduler::kGivenOrder)
    options.plan.policy = plan_->policy;
  take_model_flags(plan_->spec, options);
  const bool is_its_policy = options.plan.policy == plan_->policy;
  if (is_free("--drain-every") && is_its_policy && plan_->drain_every > 1 && !plan_->schedule)
    options.plan.order.drain_every = plan_->drain_every;
  if (is_free("--profile") && !plan_->profile.empty())
    options.plan.profile = linked_file(std::filesystem::path(path_).parent_path().string(), plan_->profile.raw());
  return options;
}

const ir::Cluster* GivenPlan::machines(const Options& options) const {
  const bool is_named = options.given.contains("--cluster") || options.given.contains("--devices");
  return is_named || !plan_ || plan_->cluster.devices.empty() ? nullptr : &plan_->cluster;
}

Status GivenPlan::use(Pipeline& pipeline, const Options& options) const {
  ir::Plan given = *plan_;
  GP_TRY_VOID(check_batch(given, options));
  if (!given.model_digest.empty()) {
    GP_TRY_VOID(find_digest(pipeline));
    if (given.model_digest != pipeline.model.digest) return other_model(pipeline.plan);
    GP_TRY_VOID(check_same_options(given, pipeline.plan));
  }
  GP_TRY_VOID(check_labels(given, pipeline.priced));
  pipeline.plan.planner = partitioner::kManual;
  pipeline.plan.execution = pipeline.priced.execution = given.execution;
  if (!options.given.contains("--profile") && pipeline.plan.profile_digest != given.profile_digest)
    return other_profile(pipeline.plan.profile.raw());
  const std::optional<Diagnostic> edited = machines(options) != nullptr ? edited_machines(given) : std::nullopt;
  if (edited) pipeline.model.notes.push_back(*edited);
  pipeline.plan.assignment = std::move(given.assignment);
  if (given.schedule) pipeline.plan.policy = given.policy;
  pipeline.plan.schedule = std::move(given.schedule);
  if (pipeline.plan.schedule) pipeline.plan.drain_every = given.drain_every;
  return Ok{};
}

Status GivenPlan::named(Status status) const {
  if (status.ok()) return status;
  return of_file(status.problems(), path_);
}

}  // namespace graphpipe::driver
