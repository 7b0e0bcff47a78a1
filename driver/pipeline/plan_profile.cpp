#include "driver/pipeline/plan_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "cost/in_flight.h"
#include "cost/limits.h"
#include "driver/cli/usage.h"
#include "driver/launch/digest.h"
#include "driver/launch/process.h"
#include "driver/pipeline/choose.h"
#include "driver/pipeline/given_plan.h"
#include "driver/pipeline/machine.h"
#include "driver/report/profile_plan_report.h"
#include "driver/report/report.h"
#include "files/plan.h"
#include "partitioner/profile.h"
#include "scheduler/policies/policies.h"
#include "scheduler/step_of_plan.h"
#include "support/units.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
Result<ProfileProblem::Priced> ProfileProblem::priced(const ir::Assignment& assignment) const {
  GP_TRY(ir::Assignment plan, fold(folded_, assignment));
  const double bandwidth = cluster_.levels.front().bandwidth.count;
  return Priced{.graph = cost::with_alternatives(folded_.graph, plan, bandwidth), .assignment = std::move(plan)};
}

double ProfileProblem::step_in_search(const ir::Assignment& assignment) const {
  const auto plan = fold(folded_, assignment);
  if (!plan) return kInfinity;
  return scheduler::step_of_plan(folded_.graph, cluster_, build_options(options_.plan.policy, folded_.graph), *plan,
                                 scheduler::kMaxSimulatedInProfileSearch, 1);
}

bool ProfileProblem::may_fit(const Priced& plan) const {
  ir::Assignment assignment = plan.assignment;
  const auto stages = ir::build_stage_graph(plan.graph, assignment);
  return stages.ok() && cost::in_flight(*stages, cluster_).fits;
}

ir::Cluster ProfileProblem::cluster_for(bool fits) const {
  ir::Cluster cluster = cluster_;
  if (!fits)
    for (ir::Device& device : cluster.devices) device.memory = Bytes(int64_t{1} << 60);
  return cluster;
}

partitioner::PlanMeasure ProfileProblem::measure(const partitioner::PlanCandidate& plan) const {
  const auto folded = priced(plan.assignment);
  if (!folded) return {};
  const int64_t max_simulated = ir::shares_devices(folded->assignment) ? scheduler::kMaxSimulatedInProfileSearch
                                                                       : scheduler::kMaxSimulatedOfFoundPlan;
  const scheduler::BuildOptions build = build_options(options_.plan.policy, folded->graph);
  const auto timed = [&](bool fits) -> partitioner::PlanMeasure {
    return {.step_seconds =
                scheduler::step_of_plan(folded->graph, cluster_for(fits), build, folded->assignment, max_simulated, 1),
            .fits = fits};
  };
  const partitioner::PlanMeasure measured = timed(may_fit(*folded));
  if (std::isfinite(measured.step_seconds) || !measured.fits) return measured;
  // Orders that do not throttle, such as gpipe's, may hold more than the fewest micro-batches in flight do.
  const partitioner::PlanMeasure free = timed(false);
  return std::isfinite(free.step_seconds) ? free : measured;
}

Result<ProfileProblem::Scheduled> ProfileProblem::scheduled(const partitioner::PlanCandidate& plan) const {
  GP_TRY(Priced folded, priced(plan.assignment));
  GP_TRY(ir::StageGraph stages, ir::build_stage_graph(folded.graph, folded.assignment));
  const ir::Cluster cluster = cluster_for(plan.fits);
  const scheduler::BuildOptions build = build_options(options_.plan.policy, folded.graph);
  GP_TRY(scheduler::OrderedBatches ordered, scheduler::order_batches(stages, cluster, build, 1));
  return Scheduled{
      .stages = std::move(stages), .cluster = cluster, .options = build, .built = std::move(ordered.built)};
}

Status ProfileProblem::schedule_problems(const partitioner::PlanCandidate& plan) const {
  if (std::isfinite(plan.step_seconds)) return Ok{};
  const auto found = scheduled(plan);
  if (!found) return found.problems();
  return Ok{};
}

std::optional<scheduler::SteadyState> ProfileProblem::steady_of(const partitioner::PlanCandidate& plan) const {
  const scheduler::Policy* policy = scheduler::find_policy(options_.plan.policy);
  if (policy == nullptr || !policy->asynchronous) return std::nullopt;
  const auto found = scheduled(plan);
  if (!found) return std::nullopt;
  return scheduler::steady_state(found->stages, found->cluster, found->options, found->built.schedule);
}

std::string ProfileProblem::limit_of(const partitioner::PlanCandidate& plan) const {
  auto folded = priced(plan.assignment);
  if (!folded || !std::isfinite(plan.step_seconds)) return "";
  const ir::Assignment listed = folded->assignment;
  const auto stages = ir::build_stage_graph(folded->graph, folded->assignment);
  if (!stages || listed != folded->assignment) return "";
  return cost::limit_of(*stages, cluster_for(plan.fits), plan.step_seconds).sentence;
}

Result<partitioner::PlanAnswer> ProfileProblem::plan(const std::string& planner) const {
  partitioner::PlanRequest request = request_;
  request.time_limit =
      options_.plan.time_limit > 0 ? options_.plan.time_limit : partitioner::usual_seconds_of_profile(planner);
  if (options_.plan.plan.empty()) return partitioner::plan(planner, request);
  const partitioner::PlannerEntry* entry = partitioner::find_planner(planner);
  if (entry != nullptr && entry->search != nullptr)
    return usage("--planner " + planner, "there is nothing to plan: --plan says it all", "leave one of them out");
  GP_TRY(const ir::Plan manual, files::read_plan(options_.plan.plan));
  GP_TRY_VOID(check_labels(manual, profile_.graph));
  request.manual = &manual.assignment;
  Result<partitioner::PlanAnswer> limited = partitioner::plan(partitioner::kManual, request);
  if (limited || !request.limit_memory) return limited;
  // As planners answer where nothing fits, so that what `-o` wrote can be read; measure() tells that it does not.
  request.limit_memory = false;
  request.evaluate = {};
  Result<partitioner::PlanAnswer> free = partitioner::plan(partitioner::kManual, request);
  return free ? free : limited;
}

namespace {

using partitioner::PlanCandidate;

/// A plan file can only say stages on accelerators. Errors: kUsage for a stage on a CPU, and for layers that belong
/// together but are in two stages.
Status refuse_unwritable(const Options& options, const ProfileProblem& problem, const ir::Assignment& plan) {
  const std::string flag = "-o " + options.output,
                    hint = "leave it out, or use a planner of our own, such as graphpipe";
  for (const ir::StageId s : ids<ir::StageId>(plan.choice.size()))
    if (problem.is_on_cpu(plan.choice[s]))
      return usage(flag, text("stage s", s, " runs on a CPU, which a plan file cannot say"), hint);
  for (const auto& members : problem.profile().graph.colocated)
    for (const ir::PlanNodeId id : members)
      if (plan.stage_of[id] != plan.stage_of[members.front()])
        return usage(flag, "layers that belong together are in two stages of the plan", hint);
  return Ok{};
}

Status write_plan_file(const Options& options, const ProfileProblem& problem, const PlanCandidate& found) {
  GP_TRY_VOID(refuse_unwritable(options, problem, found.assignment));
  const ir::PlanGraph& graph = problem.profile().graph;
  ir::Plan plan;
  plan.spec.path = ModelText(std::filesystem::absolute(options.plan.profile).string());
  GP_TRY(plan.profile_digest, sha256_of_file(options.plan.profile));
  plan.batch = graph.batch;
  plan.execution = graph.execution;
  plan.planner = options.plan.planner;
  plan.policy = options.plan.policy;
  plan.cluster = partitioner::accelerators_of(problem.request());
  plan.assignment = found.assignment;
  if (std::ranges::all_of(plan.assignment.alternative, [](int way) { return way == 0; }))
    plan.assignment.alternative = {};
  for (const ir::PlanNode& node : graph.nodes) plan.labels.push_back(node.label);
  return files::write_plan(options.output, plan);
}

/// The machine that the plan is of, as flags say it. Errors: kBadPlan for one that they cannot say.
Status take_machine(const ir::Cluster& machine, Options& options) {
  if (machine.devices.empty() || machine.levels.empty()) return Ok{};
  const ir::Device& first = machine.devices[ir::DeviceId(size_t{0})];
  const bool is_even =
      std::ranges::all_of(machine.devices, [&](const ir::Device& device) { return device.memory == first.memory; }) &&
      std::ranges::all_of(machine.levels, [](const ir::LinkLevel& level) { return level.latency == Seconds(0); });
  if (!is_even)
    return Diagnostic{.code = Code::kBadPlan,
                      .origin = ModelText(options.plan.plan),
                      .message =
                          "its devices differ in memory, or its links have a latency, which no machine of another "
                          "project's profile does",
                      .hint = "say the machine with --devices or --topology, --bandwidth and --memory"};
  int below = 1;
  std::string& topology = options.foreign.topology;
  for (const ir::LinkLevel& level : machine.levels) {
    topology += text(topology.empty() ? "" : ",", level.group / below, "@", fmt::format("{}", level.bandwidth.count));
    below = level.group;
  }
  // What nobody limits stands in the file as the most that is.
  const auto memory = static_cast<double>(first.memory.count);
  if (memory < kMaxDeviceMemory) options.plan.memory = memory;
  std::string& ends = options.foreign.machines;
  for (size_t d = 1; d <= machine.devices.size(); ++d) {
    const bool ends_here = d == machine.devices.size() ||
                           machine.devices[ir::DeviceId(d)].host != machine.devices[ir::DeviceId(d - 1)].host;
    if (ends_here) ends += text(ends.empty() ? "" : ",", d);
  }
  return Ok{};
}

}  // namespace

Result<Options> completed_by_plan(Options options) {
  if (options.plan.plan.empty()) return options;
  GP_TRY(const ir::Plan plan, files::read_plan(options.plan.plan));
  GP_TRY_VOID(check_names(plan, options.plan.plan));
  if (!plan.model_digest.empty())
    return Diagnostic{.code = Code::kBadPlan,
                      .origin = ModelText(options.plan.plan),
                      .message = "the plan is of a model, not of a profile of another project",
                      .hint = "leave --profile-format out"};
  if (options.plan.profile.empty()) {
    options.plan.profile = plan.spec.path.raw();
    GP_TRY(const std::string digest, sha256_of_file(options.plan.profile));
    if (!plan.profile_digest.empty() && digest != plan.profile_digest) return other_profile(options.plan.profile);
  }
  if (options.plan.execute.empty()) options.plan.execute = ir::execution_name(plan.execution);
  if (!options.given.contains("--policy") && scheduler::find_policy(plan.policy) != nullptr)
    options.plan.policy = plan.policy;
  if (!options.given.contains("--micro-batches") && !options.given.contains("--batch"))
    options.foreign.micro_batches = plan.batch.count;
  constexpr std::array kOfMachine = {"--devices", "--topology", "--bandwidth", "--memory", "--machines", "--cpus"};
  if (std::ranges::none_of(kOfMachine, [&](const char* flag) { return options.given.contains(flag); }))
    GP_TRY_VOID(take_machine(plan.cluster, options));
  return options;
}

int run_plan_profile(const Options& asked) {
  catch_interrupts();
  const Result<Options> read = completed_by_plan(asked);
  if (!read) return report_problems(asked, "plan", read.problems());
  const Options& options = *read;
  const auto problem = ProfileProblem::read(options);
  if (!problem) return report_problems(options, "plan", problem.problems());
  const auto answer = (*problem)->plan(options.plan.planner);
  if (!answer) return report_problems(options, "plan", answer.problems());
  if (!options.output.empty()) {
    const Status written = write_plan_file(options, **problem, answer->candidates.front());
    if (!written) return report_problems(options, "plan", written.problems());
  }
  const Status ordered = (*problem)->schedule_problems(answer->candidates.front());
  Diagnostics notes = ordered.ok() ? Diagnostics{} : ordered.problems();
  for (Diagnostic& note : notes) note.severity = Severity::kWarning;
  report_notes(options, notes);
  if (options.json) print_json("plan", profile_json(options, **problem, *answer), notes, answer->complete);
  else std::cout << profile_text(options, **problem, *answer);
  return end_code(answer->complete);
}

}  // namespace graphpipe::driver
