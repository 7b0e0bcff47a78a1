#include "driver/pipeline/given_plan.h"

#include <algorithm>
#include <filesystem>

#include "driver/cli/usage.h"
#include "driver/launch/linked_file.h"
#include "driver/pipeline/model_spec.h"
#include "files/plan.h"
#include "partitioner/planner.h"
#include "passes/losses/registry.h"
#include "scheduler/policies/policies.h"

namespace graphpipe::driver {
namespace {

// A plan numbers the nodes of a graph: one that was made under other options numbers other nodes. A plan written by
// hand names no model, so nothing is known of the options that its author had in mind.
Status check_same_options(const ir::Plan& given, const ir::Plan& now) {
  const auto trains = [](const ir::Plan& plan) {
    return std::string(runs_forwards_only(plan.policy) ? "forwards only" : "training");
  };
  Diagnostics problems = spec_differences(given.spec, now.spec);
  if (trains(given) != trains(now)) problems.push_back(other_option("--policy", trains(given), trains(now)));
  if (!problems.empty()) return problems;
  return Ok{};
}

// A plan with a schedule leaves a policy nothing to decide.
Status check_order_flags(const ir::Plan& given, const Options& options) {
  if (!given.schedule) return Ok{};
  Diagnostics problems;
  for (const char* flag : {"--policy", "--group", "--backward", "--vertical-sync", "--update", "--drain-every"}) {
    const bool says_the_same = flag == std::string_view("--policy") && options.plan.policy == given.policy;
    if (!options.given.contains(flag) || says_the_same) continue;
    problems.push_back(usage(flag, "the plan file has a schedule, and it is used as it is",
                             "leave the flag out, or delete the schedule field of the plan"));
  }
  if (options.training.batch != given.batch.count)
    problems.push_back(usage(text("--batch ", options.training.batch),
                             text("the plan file has a schedule of ", given.batch.count, " samples"),
                             "leave the flag out, or delete the schedule field of the plan"));
  if (!problems.empty()) return problems;
  return Ok{};
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

}  // namespace

Status check_edits(const ir::Plan& plan) {
  constexpr const char* kHint = "remove the plan's schedule, so that the policy orders it anew, or write back the ";
  const scheduler::Policy* policy = scheduler::find_policy(plan.policy);
  const bool is_of_auto = policy != nullptr && policy->tries_others && !ir::is_asynchronous(*plan.schedule);
  if (plan.schedule->policy != plan.policy && !is_of_auto)
    return Diagnostic{.code = Code::kBadPlan,
                      .origin = ModelText("policy"),
                      .message = text("it is ", quoted(ModelText(plan.policy)), ", and the plan's schedule is one of ",
                                      quoted(ModelText(plan.schedule->policy))),
                      .hint = text(kHint, "name")};
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
                        .hint = text(kHint, "number")};
    }
  return Ok{};
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
  if (!options.plan.order.file.empty()) given.plan_->schedule.reset();
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
  GP_TRY_VOID(check_order_flags(given, options));
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
  if (machines(options) != nullptr) pipeline.plan.cluster_digest = given.cluster_digest;
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
