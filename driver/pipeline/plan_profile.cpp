#include "driver/pipeline/plan_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <iostream>

#include "cost/in_flight.h"
#include "cost/limits.h"
#include "driver/cli/usage.h"
#include "driver/launch/process.h"
#include "driver/pipeline/choose.h"
#include "driver/pipeline/given_plan.h"
#include "driver/pipeline/machine.h"
#include "driver/report/plan_report.h"
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

ir::Cluster ProfileProblem::cluster_for(const Priced& plan, bool* may_run) const {
  ir::Assignment assignment = plan.assignment;
  const auto stages = ir::build_stage_graph(plan.graph, assignment);
  const bool fits = stages.ok() && cost::in_flight(*stages, cluster_).fits;
  if (may_run != nullptr) *may_run = fits;
  ir::Cluster cluster = cluster_;
  if (!fits)
    for (ir::Device& device : cluster.devices) device.memory = Bytes(int64_t{1} << 60);
  return cluster;
}

partitioner::PlanMeasure ProfileProblem::measure(const partitioner::PlanCandidate& plan) const {
  const auto folded = priced(plan.assignment);
  if (!folded) return {};
  bool may_run = false;
  const ir::Cluster cluster = cluster_for(*folded, &may_run);
  const int64_t max_simulated = ir::shares_devices(folded->assignment) ? scheduler::kMaxSimulatedInProfileSearch
                                                                       : scheduler::kMaxSimulatedOfFoundPlan;
  return {.step_seconds =
              scheduler::step_of_plan(folded->graph, cluster, build_options(options_.plan.policy, folded->graph),
                                      folded->assignment, max_simulated, 1),
          .fits = may_run};
}

Result<ProfileProblem::Scheduled> ProfileProblem::scheduled(const partitioner::PlanCandidate& plan) const {
  GP_TRY(Priced folded, priced(plan.assignment));
  GP_TRY(ir::StageGraph stages, ir::build_stage_graph(folded.graph, folded.assignment));
  const ir::Cluster cluster = cluster_for(folded);
  const scheduler::BuildOptions build = build_options(options_.plan.policy, folded.graph);
  GP_TRY(scheduler::BuiltSchedule built, scheduler::build_schedule(stages, cluster, build));
  return Scheduled{.stages = std::move(stages), .cluster = cluster, .options = build, .built = std::move(built)};
}

Status ProfileProblem::schedule_problems(const partitioner::PlanCandidate& plan) const {
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
  if (!folded) return "";
  const ir::Assignment listed = folded->assignment;
  const auto stages = ir::build_stage_graph(folded->graph, folded->assignment);
  if (!stages || listed != folded->assignment) return "";
  return cost::limit_of(*stages, cluster_for(*folded), plan.step_seconds).sentence;
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
  // With the flag the same cut is executed in another way.
  if (options_.plan.execute.empty() && manual.execution != profile_.graph.execution)
    return usage("--execute", text("the plan file is executed as a ", ir::execution_name(manual.execution)),
                 text("add --execute ", ir::execution_name(manual.execution)));
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

using partitioner::PlanAnswer;
using partitioner::PlanCandidate;

/// Layers of a stage in the order of the file.
std::vector<ir::PlanNodeId> layers_of(const ProfileProblem& problem, const ir::Assignment& plan, ir::StageId stage) {
  std::vector<ir::PlanNodeId> layers;
  for (const ir::PlanNodeId id : problem.profile().graph.file_order.nodes)
    if (plan.stage_of[id] == stage) layers.push_back(id);
  return layers;
}

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

void add_nodes(JsonObject& object, const ir::PlanGraph& graph, const std::vector<ir::PlanNodeId>& layers) {
  std::vector<std::string> names;
  std::vector<int64_t> numbers;
  for (const ir::PlanNodeId id : layers) {
    const std::string& name = graph.nodes[id].label.raw();
    names.push_back(name);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
  }
  if (numbers.size() == names.size()) object.add("nodes", numbers);
  else object.add("nodes", names);
}

/// For each layer, the number of its alternative among those of the stage's degree.
std::vector<int64_t> variants_of(const ProfileProblem& problem, const ir::Assignment& plan,
                                 const std::vector<ir::PlanNodeId>& layers) {
  std::vector<int64_t> variants;
  for (const ir::PlanNodeId id : layers) {
    const auto& ways = problem.profile().graph.nodes[id].alternatives;
    const auto first =
        std::ranges::find(ways, plan.choice[plan.stage_of[id]].degree, &ir::NodeAlternative::degree) - ways.begin();
    variants.push_back(plan.alternative[id] - (first < std::ssize(ways) ? first : 0));
  }
  return variants;
}

std::string planner_of(const Options& options) {
  return options.plan.plan.empty() ? options.plan.planner : std::string(partitioner::kManual);
}

JsonObject profile_json(const Options& options, const ProfileProblem& problem, const PlanAnswer& answer) {
  const PlanCandidate& plan = answer.candidates.front();
  std::vector<JsonObject> stages;
  for (const ir::StageId s : ids<ir::StageId>(plan.assignment.choice.size())) {
    const ir::StageChoice& choice = plan.assignment.choice[s];
    const std::vector<ir::PlanNodeId> layers = layers_of(problem, plan.assignment, s);
    JsonObject object;
    add_nodes(object, problem.profile().graph, layers);
    object.add("devices", devices_of(choice)).add("micro_batch", choice.micro_batch.count);
    object.add("replicas", static_cast<int>(choice.devices.size())).add("degree", choice.degree);
    if (!plan.assignment.alternative.empty()) object.add("variants", variants_of(problem, plan.assignment, layers));
    stages.push_back(object.add("cpu", problem.is_on_cpu(choice)).add("recompute", choice.recompute));
  }
  JsonObject object;
  object.add("planner", planner_of(options));
  object.add("objective", plan.own->objective).add("unit", std::string(plan.own->unit));
  object.add("bound", plan.own->bound).add("gap", plan.own->gap()).add("stages", stages);
  object.add("search_seconds", answer.search_seconds).add("simulated_step", plan.step_seconds);
  if (const auto steady = problem.steady_of(plan))
    object.add("steady_step", steady->step_seconds).add("steady_update", steady->update_seconds);
  object.add("execute", std::string(ir::execution_name(problem.profile().graph.execution)));
  object.add("micro_batches", problem.micro_batches()).add("devices", problem.devices());
  object.add("fits_memory", plan.fits).add("fits_as_counted_there", plan.own->fits);
  object.add("states", answer.states).add("pairs", answer.pairs).add("stopped", answer.stopped);
  return object.add("limit", problem.limit_of(plan)).add("profile_format", options.foreign.format);
}

std::string profile_text(const Options& options, const ProfileProblem& problem, const PlanAnswer& answer) {
  const PlanCandidate& plan = answer.candidates.front();
  std::vector<std::vector<std::string>> rows{{"stage", "devices", "layers", "degree", "first layer"}};
  for (const ir::StageId s : ids<ir::StageId>(plan.assignment.choice.size())) {
    const ir::StageChoice& choice = plan.assignment.choice[s];
    const std::vector<ir::PlanNodeId> layers = layers_of(problem, plan.assignment, s);
    const ir::PlanNode& first = problem.profile().graph.nodes[layers.front()];
    rows.push_back({text("s", s), problem.is_on_cpu(choice) ? "cpu" : devices_text(choice),
                    std::to_string(layers.size()), std::to_string(choice.degree),
                    text(Terminal::encode(first.label).str().substr(0, 20), " ",
                         Terminal::encode(first.description).str().substr(0, 40))});
  }
  const partitioner::OwnObjective& own = *plan.own;
  std::string out = table(rows);
  out += fmt::format("planner {}: objective {:.9g} {}, bound {:.9g} (gap {:.2f} %), searched {}{}\n",
                     planner_of(options), own.objective, own.unit, own.bound, 100 * own.gap(),
                     human_seconds(answer.search_seconds), answer.stopped.empty() ? "" : "; " + answer.stopped);
  out += fmt::format("simulated step {}\n", human_seconds(plan.step_seconds));
  if (const auto steady = problem.steady_of(plan)) out += steady_line(*steady);
  if (!plan.fits)
    out += text("the plan does not fit the memory of the devices",
                own.fits ? " with what a schedule keeps in flight" : "", "; it is timed as if it did\n");
  if (const std::string limit = problem.limit_of(plan); !limit.empty()) out += "limited by " + limit + "\n";
  return out;
}

Status write_plan_file(const Options& options, const ProfileProblem& problem, const PlanCandidate& found) {
  GP_TRY_VOID(refuse_unwritable(options, problem, found.assignment));
  const ir::PlanGraph& graph = problem.profile().graph;
  ir::Plan plan;
  plan.spec.path = ModelText(std::filesystem::absolute(options.plan.profile).string());
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

/// With what the plan file says of the order, of the micro-batches of a step and of the machine, where no flag does.
Result<Options> completed(Options options) {
  if (options.plan.plan.empty()) return options;
  GP_TRY(const ir::Plan plan, files::read_plan(options.plan.plan));
  GP_TRY_VOID(check_names(plan, options.plan.plan));
  if (!options.given.contains("--policy") && scheduler::find_policy(plan.policy) != nullptr)
    options.plan.policy = plan.policy;
  if (!options.given.contains("--micro-batches") && !options.given.contains("--batch"))
    options.foreign.micro_batches = plan.batch.count;
  constexpr std::array kOfMachine = {"--devices", "--topology", "--bandwidth", "--memory", "--machines", "--cpus"};
  if (std::ranges::none_of(kOfMachine, [&](const char* flag) { return options.given.contains(flag); }))
    GP_TRY_VOID(take_machine(plan.cluster, options));
  return options;
}

}  // namespace

int run_plan_profile(const Options& asked) {
  catch_interrupts();
  const Result<Options> read = completed(asked);
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
  if (options.json) print_json("plan", profile_json(options, **problem, *answer), {}, answer->complete);
  else std::cout << profile_text(options, **problem, *answer);
  return end_code(answer->complete);
}

}  // namespace graphpipe::driver
