#include "driver/pipeline/plan_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <set>

#include "cost/iteration_time.h"
#include "cost/layer_conversion.h"
#include "cost/limits.h"
#include "cost/lower_bound.h"
#include "driver/cli/usage.h"
#include "driver/launch/process.h"
#include "driver/pipeline/choose.h"
#include "driver/pipeline/profile_auto.h"
#include "driver/report/report.h"
#include "files/plan.h"
#include "support/stopwatch.h"
#include "support/units.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
namespace {

using partitioner::LayerPlanRequest;

/// Stages times micro-batches up to which a step is simulated, and up to which it is while plans are searched; above it
/// the closed form stands for it.
constexpr int64_t kMaxSimulated = 20'000, kMaxSimulatedInSearch = 2'000;
/// Plans of a search that are simulated in the end.
constexpr size_t kSimulated = 4;

// Seconds of one step, or infinity for a plan without a schedule.
double step_of(const ir::PlanGraph& graph, const ir::Cluster& cluster, ir::Assignment assignment,
               const std::string& policy, int64_t max_simulated = kMaxSimulated) {
  const auto stages = ir::build_stage_graph(graph, assignment);
  if (!stages) return kInfinity;
  int64_t items = 0;
  for (const ir::StageChoice& choice : assignment.choice)
    items += (graph.batch.count + choice.micro_batch.count - 1) / choice.micro_batch.count;
  if (items > max_simulated) return cost::iteration_time(*stages, cluster).total();
  const auto built = scheduler::build_schedule(*stages, cluster, build_options(policy, graph));
  if (!built) return cost::iteration_time(*stages, cluster).total();
  return built->step_seconds();
}

bool shares_devices(const ir::LayerPlan& plan) {
  std::set<int> taken;
  for (const ir::LayerStage& stage : plan.stages)
    for (const int device : stage.devices)
      if (!taken.insert(device).second) return true;
  return false;
}

// Whether the plan fits as the project counts memory that the profile comes from. Of these only dnn-partitioning knows
// stages that share a device.
bool fits_in_own_terms(const LayerPlanRequest& request, const ir::LayerPlan& plan) {
  if (request.graph->source != ir::LayerSource::kDnnPartitioning && shares_devices(plan)) return false;
  cost::LayerConvention convention{.cut = cost::CutRule::kNone, .copies = cost::CopiesRule::kFrom};
  if (request.graph->source == ir::LayerSource::kPiper)
    convention = {.cut = cost::CutRule::kStageEdges, .copies = cost::CopiesRule::kVariants};
  if (request.graph->source == ir::LayerSource::kDnnPartitioning)
    convention = {.cut = cost::CutRule::kStageTransfers, .copies = cost::CopiesRule::kOnce, .pools_devices = true};
  return cost::price_layer_plan(*request.graph, plan, request.machine, convention).shortfall <= 0;
}

// Whether some numbers of micro-batches in flight keep the plan within the memory of every device.
bool fits_in_flight(const ir::PlanGraph& graph, const ir::Cluster& cluster, ir::Assignment assignment) {
  const auto stages = ir::build_stage_graph(graph, assignment);
  return stages.ok() && cost::in_flight(*stages, cluster).fits;
}

// Nothing where stages were listed in another order than their numbers, which the sentence names.
std::string limit_sentence(const ir::PlanGraph& graph, const ir::Cluster& cluster, ir::Assignment assignment,
                           double step) {
  const ir::Assignment listed = assignment;
  const auto stages = ir::build_stage_graph(graph, assignment);
  if (!stages || !(listed == assignment)) return "";
  return cost::limit_of(*stages, cluster, step).sentence;
}

void simulate_layers(const LayerPlanRequest& request, const ir::LayerPlan& layers, const std::string& policy,
                     ProfilePlan& plan) {
  const auto converted = cost::convert_layers(*request.graph, Samples(request.micro_batches), &layers,
                                              request.machine.levels.front().bandwidth);
  auto assignment = cost::assignment_of(converted, layers, request.machine);
  plan.simulated_step = kInfinity;
  if (!assignment) return;
  cost::LayerMachine machine = request.machine;
  const bool may_run = fits_in_flight(converted.graph, cost::cluster_of(machine), *assignment);
  plan.fits = may_run || fits_in_own_terms(request, layers);
  if (!may_run) machine.memory = kInfinity;
  const ir::Cluster cluster = cost::cluster_of(machine);
  // Many short stages that share devices take long to simulate.
  plan.simulated_step = step_of(converted.graph, cluster, *assignment, policy,
                                shares_devices(layers) ? kMaxSimulatedInSearch : kMaxSimulated);
  plan.limit = limit_sentence(converted.graph, cluster, *assignment, plan.simulated_step);
  plan.assignment = std::move(*assignment);
}

// These planners decide what the flags would force, or take the unit of work as it was measured.
Status refuse_forced(const partitioner::LayerPlannerEntry& row, const Options& options,
                     const LayerPlanRequest& request) {
  const std::string hint = "leave it out, or use a planner of our own, such as graphpipe";
  if (options.plan.stages > 0)
    return usage("--stages", text("the planner ", row.name, " decides the number of stages itself"), hint);
  if (!options.plan.replicas.empty())
    return usage("--replicas", text("the planner ", row.name, " decides the replicas itself"), hint);
  if (options.plan.shard_optimizer)
    return usage("--shard-optimizer", text("the planner ", row.name, " keeps the optimizer state whole"), hint);
  if (options.plan.micro_batch != "auto" && row.name != "dapple" && request.micro_batch != request.profile_batch)
    return usage("--micro-batch " + options.plan.micro_batch,
                 text("the planner ", row.name, " takes micro-batches as they were profiled, here of ",
                      request.profile_batch, " samples"),
                 "leave it out, or say --profile-batch");
  return Ok{};
}

// Layers of one class share a device, which of these planners only max-throughput knows: for the others they are one
// layer. The stages of the answer are those of the request's graph.
Result<partitioner::LayerPlanAnswer> plan_whole_classes(const partitioner::LayerPlannerEntry& row,
                                                        const LayerPlanRequest& request) {
  if (row.name == "max-throughput" || request.graph->source != ir::LayerSource::kDnnPartitioning)
    return partitioner::plan_layers(row, request);
  const auto converted = cost::convert_layers(*request.graph, Samples(1));
  ir::LayerGraph joined = cost::layer_graph_of(converted.graph, Samples(1), request.machine.levels.front().bandwidth);
  joined.time_unit_seconds = request.graph->time_unit_seconds;
  LayerPlanRequest whole = request;
  whole.graph = &joined;
  GP_TRY(partitioner::LayerPlanAnswer answer, partitioner::plan_layers(row, whole));
  IdMap<ir::LayerId, std::vector<ir::LayerId>> members(joined.layers.size());
  for (const ir::LayerId layer : request.graph->layer_ids())
    members[ir::LayerId(converted.node_of[layer].index())].push_back(layer);
  for (ir::LayerStage& stage : answer.plan.stages) {
    std::vector<ir::LayerId> layers;
    for (const ir::LayerId layer : stage.layers)
      layers.insert(layers.end(), members[layer].begin(), members[layer].end());
    std::ranges::sort(layers);
    stage.layers = std::move(layers);
    stage.recompute = stage.recompute || std::ranges::any_of(stage.variants, [](int variant) { return variant > 0; });
    stage.variants.clear();
  }
  return answer;
}

Result<ProfilePlan> plan_by_layers(const partitioner::LayerPlannerEntry& row, const Options& options,
                                   const LayerPlanRequest& request) {
  GP_TRY_VOID(refuse_forced(row, options, request));
  GP_TRY(const partitioner::LayerPlanAnswer answer, plan_whole_classes(row, request));
  ProfilePlan plan{.planner = std::string(row.name),
                   .objective = answer.objective,
                   .bound = answer.bound,
                   .gap = answer.gap(),
                   .unit = std::string(answer.unit),
                   .search_seconds = answer.search_seconds,
                   .complete = answer.complete,
                   .stopped = answer.stopped,
                   .states = answer.states,
                   .pairs = answer.pairs};
  for (size_t s = 0; s < answer.plan.stages.size(); ++s) {
    const ir::LayerStage& stage = answer.plan.stages[s];
    ProfilePlan::Stage out{.layers = stage.layers,
                           .devices = stage.devices,
                           .replicas = stage.replicas,
                           .degree = stage.degree,
                           .variants = stage.variants,
                           .on_cpu = stage.on_cpu,
                           .recompute = stage.recompute};
    if (stage.degree == 1) out.devices = cost::devices_of(answer.plan, s, request.machine);
    out.replicas = static_cast<int>(out.devices.size()) / stage.degree;
    plan.stages.push_back(std::move(out));
  }
  simulate_layers(request, answer.plan, options.plan.policy, plan);
  return plan;
}

// One sample of the plan graph is one unit of the profiled work.
Status take_flags_in_units(const Options& options, const LayerPlanRequest& layers, partitioner::PlanRequest& request) {
  PlanOptions flags = options.plan;
  if (flags.micro_batch != "auto") {
    if (layers.micro_batch % layers.profile_batch != 0)
      return usage("--micro-batch " + flags.micro_batch,
                   text("the profile is of ", layers.profile_batch, " samples, which are not divided"),
                   "give a multiple, or say --profile-batch");
    flags.micro_batch = std::to_string(layers.micro_batch / layers.profile_batch);
  }
  return take_flags(flags, request);
}

}  // namespace

ir::Cluster accelerators_of(const LayerPlanRequest& request) {
  cost::LayerMachine machine = request.machine;
  machine.cpus = 0;
  return cost::cluster_of(machine);
}

double gap_over(double value, double bound) {
  if (value <= bound) return 0;
  return bound > 0 ? value / bound - 1 : kInfinity;
}

Result<ProfilePlan> plan_profile_by_graph(const std::string& planner, const Options& options,
                                          const LayerPlanRequest& layers) {
  const auto converted = cost::convert_layers(*layers.graph, Samples(layers.micro_batches));
  const ir::Cluster cluster = accelerators_of(layers);
  partitioner::PlanRequest request;
  request.graph = &converted.graph;
  request.cluster = &cluster;
  GP_TRY_VOID(take_flags_in_units(options, layers, request));
  request.replication = layers.replication;
  request.limit_memory = std::isfinite(layers.machine.memory);
  request.time_limit = layers.time_limit;
  request.cancel = layers.cancel;
  request.threads = static_cast<int>(options.training.threads);
  request.evaluate = [&](const ir::Assignment& assignment) {
    return step_of(converted.graph, cluster, assignment, options.plan.policy, kMaxSimulatedInSearch);
  };
  ir::Plan manual;
  if (!options.plan.plan.empty()) {
    GP_TRY(manual, files::read_plan(options.plan.plan));
    request.manual = &manual.assignment;
  }
  GP_TRY(partitioner::PlanAnswer answer, partitioner::plan(planner, request));
  answer.candidates.resize(std::min(kSimulated, answer.candidates.size()));
  for (partitioner::PlanCandidate& candidate : answer.candidates)
    candidate.step_seconds = step_of(converted.graph, cluster, candidate.assignment, options.plan.policy);
  const partitioner::PlanCandidate& best =
      *std::ranges::min_element(answer.candidates, {}, &partitioner::PlanCandidate::step_seconds);
  ProfilePlan plan{.planner = planner,
                   .objective = best.step_seconds,
                   .bound = cost::plan_bound(converted.graph, cluster).step(converted.graph.batch),
                   .unit = "s",
                   .simulated_step = best.step_seconds,
                   .search_seconds = answer.search_seconds,
                   .complete = answer.complete};
  plan.gap = gap_over(plan.objective, plan.bound);
  plan.stages.resize(best.assignment.choice.size());
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const ir::StageChoice& choice = best.assignment.choice[ir::StageId(s)];
    for (const ir::DeviceId device : choice.devices) plan.stages[s].devices.push_back(static_cast<int>(device.index()));
    plan.stages[s].replicas = static_cast<int>(choice.devices.size());
    plan.stages[s].recompute = choice.recompute;
    plan.stages[s].micro_batch = choice.micro_batch.count;
  }
  for (const ir::LayerId layer : layers.graph->layer_ids())
    plan.stages[best.assignment.stage_of[converted.node_of[layer]].index()].layers.push_back(layer);
  plan.assignment = best.assignment;
  plan.limit = limit_sentence(converted.graph, cluster, best.assignment, best.step_seconds);
  return plan;
}

Status refuse_unwritable(const Options& options, const ProfilePlan& plan) {
  const std::string flag = "-o " + options.output,
                    hint = "leave it out, or use a planner of our own, such as graphpipe";
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const ProfilePlan::Stage& stage = plan.stages[s];
    const char* beyond = nullptr;
    if (stage.on_cpu) beyond = "runs on a CPU";
    else if (stage.degree > 1) beyond = "divides each layer over several devices";
    else if (std::ranges::any_of(stage.variants, [](int v) { return v != 0; })) beyond = "takes variants of its layers";
    if (beyond != nullptr) return usage(flag, text("stage s", s, " ", beyond, ", which a plan file cannot say"), hint);
  }
  if (!plan.assignment) return usage(flag, "layers that belong together are in two stages of the plan", hint);
  return Ok{};
}

namespace {

void add_nodes(JsonObject& object, const ir::LayerGraph& graph, const std::vector<ir::LayerId>& layers) {
  std::vector<std::string> names;
  std::vector<int64_t> numbers;
  for (const ir::LayerId id : layers) {
    const std::string& name = graph.layers[id].id.raw();
    names.push_back(name);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
  }
  if (numbers.size() == names.size()) object.add("nodes", numbers);
  else object.add("nodes", names);
}

JsonObject profile_json(const Options& options, const ir::LayerGraph& graph, const LayerPlanRequest& request,
                        const ProfilePlan& plan) {
  std::vector<JsonObject> stages;
  for (const ProfilePlan::Stage& stage : plan.stages) {
    JsonObject object;
    add_nodes(object, graph, stage.layers);
    object.add("devices", std::vector<int64_t>(stage.devices.begin(), stage.devices.end()));
    object.add("micro_batch", stage.micro_batch).add("replicas", stage.replicas).add("degree", stage.degree);
    if (!stage.variants.empty())
      object.add("variants", std::vector<int64_t>(stage.variants.begin(), stage.variants.end()));
    stages.push_back(object.add("cpu", stage.on_cpu).add("recompute", stage.recompute));
  }
  JsonObject object;
  object.add("planner", plan.planner).add("objective", plan.objective).add("unit", plan.unit);
  object.add("bound", plan.bound).add("gap", plan.gap).add("stages", stages);
  object.add("search_seconds", plan.search_seconds).add("simulated_step", plan.simulated_step);
  object.add("micro_batches", request.micro_batches).add("devices", request.machine.devices());
  object.add("fits_memory", plan.fits);
  object.add("states", plan.states).add("pairs", plan.pairs).add("stopped", plan.stopped).add("limit", plan.limit);
  return object.add("profile_format", options.foreign.format);
}

std::string profile_text(const ir::LayerGraph& graph, const ProfilePlan& plan) {
  std::vector<std::vector<std::string>> rows{{"stage", "devices", "layers", "degree", "first layer"}};
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const ProfilePlan::Stage& stage = plan.stages[s];
    const ir::Layer& first = graph.layers[stage.layers.front()];
    std::string devices;
    for (const int device : stage.devices)
      if (devices.size() < 30) devices += text(devices.empty() ? "" : " ", device);
    rows.push_back(
        {text("s", s), stage.on_cpu ? "cpu" : devices, std::to_string(stage.layers.size()),
         std::to_string(stage.degree),
         text(Terminal::encode(first.id).str().substr(0, 20), " ", Terminal::encode(first.label).str().substr(0, 40))});
  }
  std::string out = table(rows);
  out += fmt::format("planner {}: objective {:.9g} {}, bound {:.9g} (gap {:.2f} %), searched {}{}\n", plan.planner,
                     plan.objective, plan.unit, plan.bound, 100 * plan.gap, human_seconds(plan.search_seconds),
                     plan.stopped.empty() ? "" : "; " + plan.stopped);
  out += fmt::format("simulated step {}\n", human_seconds(plan.simulated_step));
  if (!plan.fits) out += "the plan does not fit the memory of the devices; it is timed as if it did\n";
  if (!plan.limit.empty()) out += "limited by " + plan.limit + "\n";
  return out;
}

Status write_plan_file(const Options& options, const LayerPlanRequest& request, const ProfilePlan& found) {
  GP_TRY_VOID(refuse_unwritable(options, found));
  const auto converted = cost::convert_layers(*request.graph, Samples(request.micro_batches));
  ir::Plan plan;
  plan.model = ModelText(std::filesystem::absolute(options.plan.profile).string());
  plan.batch = converted.graph.batch;
  plan.planner = found.planner;
  plan.policy = options.plan.policy;
  plan.cluster = accelerators_of(request);
  plan.assignment = *found.assignment;
  for (const ir::PlanNode& node : converted.graph.nodes) plan.labels.push_back(node.label);
  return files::write_plan(options.output, plan);
}

}  // namespace

Result<ProfilePlan> plan_profile(const std::string& planner, const Options& options, const LayerPlanRequest& request) {
  const auto* row = partitioner::find_layer_planner(planner);
  if (!options.plan.plan.empty() && row != nullptr)
    return usage("--planner " + planner, "there is nothing to plan: --plan says it all", "leave one of them out");
  if (!options.plan.plan.empty()) return plan_profile_by_graph("manual", options, request);
  if (planner == "auto") return plan_profile_by_all(options, request);
  if (row != nullptr) return plan_by_layers(*row, options, request);
  return plan_profile_by_graph(planner, options, request);
}

int run_plan_profile(const Options& options) {
  catch_interrupts();
  const auto graph = read_foreign_profile(options);
  if (!graph) return report_problems(options, "plan", graph.problems());
  const auto request = layer_request(options, *graph);
  if (!request) return report_problems(options, "plan", request.problems());
  const auto plan = plan_profile(options.plan.planner, options, *request);
  if (!plan) return report_problems(options, "plan", plan.problems());
  if (!options.output.empty()) {
    const Status written = write_plan_file(options, *request, *plan);
    if (!written) return report_problems(options, "plan", written.problems());
  }
  if (options.json) print_json("plan", profile_json(options, *graph, *request, *plan), {}, plan->complete);
  else std::cout << profile_text(*graph, *plan);
  return end_code(plan->complete);
}

}  // namespace graphpipe::driver
