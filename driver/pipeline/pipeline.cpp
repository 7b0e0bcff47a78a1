#include "driver/pipeline/pipeline.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <tuple>

#include "codegen/memory_walk.h"
#include "cost/lower_bound.h"
#include "cost/price.h"
#include "driver/cli/usage.h"
#include "driver/launch/digest.h"
#include "driver/launch/linked_file.h"
#include "driver/launch/output_folder.h"
#include "driver/pipeline/choose.h"
#include "driver/pipeline/faster_policy.h"
#include "driver/pipeline/given_plan.h"
#include "driver/pipeline/model_spec.h"
#include "driver/pipeline/order_file.h"
#include "driver/pipeline/scope_notes.h"
#include "driver/pipeline/search_plan.h"
#include "driver/pipeline/stage_modules.h"
#include "driver/report/search_line.h"
#include "files/plan.h"
#include "files/profile.h"
#include "partitioner/check_plan.h"
#include "scheduler/memory/arena.h"
#include "scheduler/policies/policies.h"
#include "support/integer_math.h"
#include "support/units.h"
#include "wire/manifest.h"
#include "wire/optimizers.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

bool has_16_bit_weights(const ir::Graph& graph) {
  for (const ir::ParamId id : graph.param_ids())
    if (graph.param(id).trainable && ir::bytes_per_element(graph.value(graph.param(id).value).type.dtype) == 2)
      return true;
  return false;
}

// Analytic without a profile.
Result<ir::PlanGraph> price(const TrainingGraph& model, const ir::Plan& plan, const ir::Profile* profile) {
  const wire::OptimizerEntry& optimizer = wire::optimizer_named(plan.spec.optimizer);
  // At most: trained weights of 16 bits have float32 main weights beside them, and the state of these.
  const bool halves = has_16_bit_weights(model.graph);
  const double state = optimizer.state_per_weight_byte;
  return cost::price(model.graph, plan.cluster,
                     {.batch = plan.batch,
                      .optimizer_state_per_weight_byte = halves ? 2 * (1 + state) : state,
                      .optimizer = &optimizer,
                      .updates_rows = optimizer.updates_rows,
                      .profile = profile,
                      .scopes = scopes_of(plan.spec),
                      .execution = plan.execution,
                      .one_sample = plan.spec.one_sample});
}

// The profile of a plan, which must still be the file that it was priced with.
Result<std::optional<ir::Profile>> profile_of(const ir::Plan& plan) {
  if (plan.profile.empty()) return std::optional<ir::Profile>();
  const std::string& path = plan.profile.raw();
  GP_TRY(const std::string digest, sha256_of_file(path));
  if (digest != plan.profile_digest) return other_profile(path);
  GP_TRY(ir::Profile profile, files::read_profile(path));
  return std::optional<ir::Profile>(std::move(profile));
}

Status add_profile(ir::Plan& plan, const std::string& path) {
  if (path.empty()) return Ok{};
  plan.profile = ModelText(fs::absolute(path).string());
  GP_TRY(plan.profile_digest, sha256_of_file(path));
  Result<ir::Profile> read = files::read_profile(path);
  if (!read && read.problems().front().code == Code::kMalformedFile) {
    Diagnostics problems = read.problems();
    problems.front().hint += "; a profile of another project needs --profile-format, and no model";
    return problems;
  }
  if (!read) return read.problems();
  const ir::Profile& profile = *read;
  if (profile.threads != plan.threads) {
    return Diagnostic{
        .code = Code::kUsage,
        .origin = ModelText(path),
        .message = text("the profile was measured with ", profile.threads, " threads, the plan has ", plan.threads),
        .hint = "pass the same --threads, or measure again"};
  }
  plan.cluster = ir::with_measurements(std::move(plan.cluster), profile);
  return Ok{};
}

Result<ir::Plan> plan_of(const Options& options, const Machine& machine) {
  ir::Plan plan;
  GP_TRY(plan.spec, model_spec(options));
  plan.spec.path = ModelText(fs::absolute(options.model.model).string());
  plan.batch = Samples(options.training.batch);
  plan.execution = execution_for(options.plan.execute, options.plan.policy);
  plan.seed = options.training.seed;
  plan.threads = static_cast<int>(options.training.threads);
  plan.planner = options.plan.planner;
  plan.policy = options.plan.policy;
  plan.cluster = machine.cluster;
  GP_TRY_VOID(add_profile(plan, options.plan.profile));
  plan.cluster = as_asked(std::move(plan.cluster), options.plan);
  return plan;
}

// A schedule that came with the plan: checked, then simulated.
Result<scheduler::BuiltSchedule> examine(const ir::StageGraph& given, const ir::Cluster& cluster,
                                         const ir::Schedule& schedule, const scheduler::BuildOptions& options) {
  const ir::StageGraph stages = is_forward_only(schedule) ? scheduler::without_backward(given) : given;
  if (const Status checked = scheduler::check_schedule(stages, cluster, schedule, {.memory = options.memory});
      !checked) {
    Diagnostics problems = checked.problems();
    for (Diagnostic& problem : problems)
      if (problem.code == Code::kBadSchedule)
        problem.hint += "; where the plan was edited, remove its schedule, so that the policy orders it anew";
    return problems;
  }
  GP_TRY(scheduler::Timeline timeline, scheduler::simulate(stages, cluster, schedule, options.simulation));
  return scheduler::BuiltSchedule{.schedule = schedule,
                                  .timeline = std::move(timeline),
                                  .memory = scheduler::memory_of(stages, schedule, options.memory),
                                  .batches = stages.batches};
}

// Data parallelism means all devices; what it cannot use is said.
void note_idle_devices(Pipeline& pipeline, bool has_replicas_asked_for) {
  const size_t all = pipeline.plan.cluster.devices.size();
  const auto& choice = pipeline.plan.assignment.choice;
  const partitioner::PlannerEntry* planner = partitioner::find_planner(pipeline.plan.planner);
  if (planner == nullptr || !planner->traits.is_one_stage || choice.size() != 1) return;
  const ir::StageChoice& stage = choice[ir::StageId(0u)];
  const int64_t micro_batches = ceil_div(pipeline.plan.batch.count, stage.micro_batch.count);
  const size_t fed =
      std::min(stage.devices.size(), static_cast<size_t>(std::max(stage.micro_batch.count, micro_batches)));
  if (fed == (has_replicas_asked_for ? stage.devices.size() : all)) return;
  pipeline.model.notes.push_back(
      {.code = Code::kNoFeasiblePlan,
       .severity = Severity::kWarning,
       .origin = ModelText("--planner " + pipeline.plan.planner),
       .message = text("it uses ", fed, " of ", has_replicas_asked_for ? stage.devices.size() : all, " devices: ",
                       pipeline.plan.batch, " samples in micro-batches of ", stage.micro_batch, " feed no more"),
       .hint = "use another micro-batch, a larger batch, or fewer devices"});
}

// Programs are written of whole operators; only profiles have prices of divided ones.
Status check_whole_operators(const ir::Plan& plan) {
  for (const ir::StageId s : ids<ir::StageId>(plan.assignment.choice.size()))
    if (plan.assignment.choice[s].degree > 1)
      return Diagnostic{
          .code = Code::kBadPlan,
          .origin = ModelText(text("stages[", s, "].degree")),
          .message = text("operators of a model are not divided over ", plan.assignment.choice[s].degree, " devices"),
          .hint = "leave the degree out, and list the devices as replicas"};
  return Ok{};
}

// The order that the user wrote, with all that it leaves to the lowering.
Result<scheduler::BuiltSchedule> take_order(const Pipeline& pipeline, const scheduler::BuildOptions& options) {
  const std::string& path = pipeline.order.file;
  GP_TRY(const Orders orders, read_orders(path));
  auto order = compute_order(pipeline.stages, orders);
  if (!order) return of_file(order.problems(), path);
  auto built =
      scheduler::lower_order(pipeline.stages, pipeline.plan.cluster, std::move(*order), options, {.synchronous = true});
  if (!built) return of_file(built.problems(), path);
  return built;
}

// A schedule of the batches between two drains.
Result<scheduler::BuiltSchedule> order_of_policy(Pipeline& pipeline, const scheduler::BuildOptions& options) {
  GP_TRY(scheduler::OrderedBatches ordered,
         scheduler::order_within_memory(pipeline.stages, pipeline.plan.cluster, options, pipeline.order.drain_every));
  pipeline.plan.drain_every = ordered.built.batches;
  pipeline.stages = std::move(ordered.stages);
  return std::move(ordered.built);
}

}  // namespace

ir::PlanGraph as_held(const Pipeline& pipeline) {
  return scheduler::with_versions_of(pipeline.plan.policy, pipeline.order.vertical_sync, pipeline.priced);
}

Result<scheduler::CountedItems> counted_items(const Pipeline& pipeline) {
  GP_TRY(codegen::StageMemories memories,
         codegen::StageMemories::of(pipeline.model.graph, pipeline.priced, pipeline.stages));
  const auto shared = std::make_shared<const codegen::StageMemories>(std::move(memories));
  // Checks, orders and devices ask for the same items, and each takes a walk through the code of a stage. Plans
  // are derived one after the other, so no two threads ask.
  const auto known = std::make_shared<std::map<std::tuple<ir::StageId, Samples, bool>, ir::ItemMemory>>();
  return scheduler::CountedItems([shared, known](ir::StageId stage, Samples samples, bool joins_backward) {
    const auto [item, is_new] = known->try_emplace({stage, samples, joins_backward});
    if (is_new) item->second = shared->item(stage, samples, joins_backward);
    return item->second;
  });
}

Status find_digest(Pipeline& pipeline) {
  GP_TRY(pipeline.model.digest, model_digest(pipeline.model.imported));
  pipeline.plan.model_digest = pipeline.model.digest;
  pipeline.plan.cluster_digest = machines_digest(pipeline.plan.cluster);
  return Ok{};
}

Status derive(Pipeline& pipeline) {
  ir::Plan& plan = pipeline.plan;
  GP_TRY_VOID(check_whole_operators(plan));
  // Several stages on one device are allowed in a plan that is given. Its memory is that of its schedule.
  Diagnostics problems = partitioner::check_plan(
      pipeline.priced, plan.cluster, plan.assignment,
      {.one_stage_per_device = false, .limit_memory = false, .objective = std::numeric_limits<double>::quiet_NaN()});
  if (!problems.empty()) return problems;
  GP_TRY(pipeline.stages, ir::build_stage_graph(as_held(pipeline), plan.assignment));
  scheduler::BuildOptions options = build_options(plan.policy, pipeline.priced, pipeline.order);
  GP_TRY(options.memory.item, counted_items(pipeline));
  if (plan.schedule) {
    GP_TRY_VOID(check_edits(plan));
    GP_TRY(pipeline.stages, ir::with_batches(std::move(pipeline.stages), plan.drain_every));
    GP_TRY(pipeline.built, examine(pipeline.stages, plan.cluster, *plan.schedule, options));
  } else {
    GP_TRY(pipeline.built,
           pipeline.order.file.empty() ? order_of_policy(pipeline, options) : take_order(pipeline, options));
    if (!pipeline.order.file.empty()) plan.policy = scheduler::kGivenOrder;
    plan.schedule = pipeline.built.schedule;
  }
  pipeline.steady = scheduler::steady_state(pipeline.stages, plan.cluster, options, *plan.schedule);
  plan.labels.resize(pipeline.priced.nodes.size());
  for (const ir::PlanNodeId node : pipeline.priced.node_ids()) plan.labels[node] = pipeline.priced.nodes[node].label;
  // The simulator counts whole ticks, which may be a little less than the bounds' exact prices.
  const double step = pipeline.built.step_seconds();
  const auto batches = static_cast<double>(plan.drain_every);
  const Samples samples(plan.batch.count * plan.drain_every);
  pipeline.step_bound = std::min(step, cost::step_bound(pipeline.stages, plan.cluster).total() / batches);
  pipeline.model_bound = std::min(step, cost::plan_bound(pipeline.priced, plan.cluster).step(samples) / batches);
  return Ok{};
}

Result<Pipeline> with_digest(Result<Pipeline> pipeline) {
  if (!pipeline || !pipeline->model.digest.empty()) return pipeline;
  GP_TRY_VOID(find_digest(*pipeline));
  return pipeline;
}

Result<Pipeline> with_places(Result<Pipeline> pipeline) {
  if (!pipeline) return pipeline;
  GP_TRY(const scheduler::CountedItems item, counted_items(*pipeline));
  pipeline->arenas = scheduler::arenas_of(pipeline->stages, *pipeline->plan.schedule, item);
  return pipeline;
}

ir::Execution execution_for(std::string_view asked, std::string_view policy) {
  if (const auto execution = ir::execution_of_name(asked)) return *execution;
  const scheduler::Policy* known = scheduler::find_policy(policy);
  const bool needs_chain =
      known != nullptr && known->shape != ir::StageShape::kAny && known->shape != ir::StageShape::kReplicas;
  return needs_chain ? ir::Execution::kChain : ir::Execution::kGraph;
}

bool is_made_a_chain(const ir::StageGraph& stages) {
  return stages.execution == ir::Execution::kChain && std::ranges::any_of(stages.edges, &ir::StageEdge::passed_on);
}

Result<Pipeline> price_model(const Options& options, const ir::Cluster* machines) {
  GP_TRY_VOID(check_machine_flags(options.plan));
  Pipeline pipeline;
  if (machines != nullptr) {
    pipeline.machine = machine_of_plan(*machines);
  } else {
    GP_TRY(pipeline.machine, find_machine(options));
  }
  GP_TRY(pipeline.plan, plan_of(options, pipeline.machine));
  pipeline.order = options.plan.order;
  GP_TRY(pipeline.model, make_training_graph(options, pipeline.plan.spec));
  pipeline.machine.sentence += asked_words(options.plan);
  for (const Diagnostic& note : pipeline.machine.notes) pipeline.model.notes.push_back(note);
  // From here on the operator graph never changes: its ids may be kept.
  GP_TRY(const std::optional<ir::Profile> profile, profile_of(pipeline.plan));
  GP_TRY(pipeline.priced, price(pipeline.model, pipeline.plan, profile ? &*profile : nullptr));
  return pipeline;
}

namespace {

Result<Pipeline> make_pipeline_of(const Options& asked) {
  GP_TRY(const GivenPlan given, GivenPlan::read(asked));
  const Options options = given.completed(asked);
  GP_TRY_VOID(check_order(options.plan.policy, options.plan.order));
  GP_TRY(Pipeline pipeline, price_model(options, given.machines(options)));
  if (given) {
    GP_TRY_VOID(given.named(given.use(pipeline, options)));
    GP_TRY_VOID(given.named(derive(pipeline)));
  } else {
    SearchLine line(options);
    GP_TRY_VOID(search_plan(pipeline, options.plan, &line));
    pipeline.faster_policy = faster_policy(pipeline);
    note_idle_devices(pipeline, !options.plan.replicas.empty());
  }
  GP_TRY(pipeline.modules, stage_modules(pipeline));
  // From here on stages and order are fixed: only text is left to write.
  for (Diagnostic& note : scope_notes(pipeline.model.graph, pipeline.priced, &pipeline.stages))
    pipeline.model.notes.push_back(std::move(note));
  return pipeline;
}

}  // namespace

Result<Pipeline> make_pipeline(const Options& asked) {
  Result<Pipeline> pipeline = make_pipeline_of(asked);
  return pipeline ? std::move(pipeline) : blaming_file(pipeline.problems(), asked);
}

Result<Pipeline> load_pipeline(const std::string& path, const std::string& trusted_root, std::string_view execution) {
  Pipeline pipeline;
  GP_TRY(pipeline.plan, files::read_plan(plan_file_of(path)));
  ir::Plan& plan = pipeline.plan;
  if (plan.cluster.devices.empty() || plan.spec.path.empty()) {
    return Diagnostic{.code = Code::kBadPlan,
                      .origin = ModelText(path),
                      .message = "the plan names no model or no machines",
                      .hint = "complete it with `graphpipe plan MODEL --devices N --plan FILE -o PLAN`"};
  }
  if (plan.model_digest.empty()) {
    return Diagnostic{.code = Code::kBadPlan,
                      .origin = ModelText(path),
                      .message = "the plan was not made for a model: it is of a profile of another project, or by hand",
                      .hint =
                          "of a profile, `graphpipe simulate` draws it and `graphpipe plan --plan FILE` plans with it, "
                          "both with the --profile-format that it was made with; by hand, add the model to the latter"};
  }
  GP_TRY_VOID(check_names(plan, path));
  const std::optional<Diagnostic> edited = edited_machines(plan);
  if (execute_as(plan, execution) && scheduler::find_policy(plan.policy) == nullptr)
    return Diagnostic{.code = Code::kBadPlan,
                      .origin = ModelText(path),
                      .message = "the plan's order is the user's own, and no policy orders it anew",
                      .hint = "say which: `graphpipe plan MODEL --plan FILE --execute chain --policy NAME -o PLAN`"};
  const std::string folder = fs::path(plan_file_of(path)).parent_path().string();
  plan.spec.path = ModelText(linked_file(folder, plan.spec.path.raw()));
  plan.spec.trusted_root = ModelText(trusted_root);
  if (!plan.profile.empty()) plan.profile = ModelText(linked_file(folder, plan.profile.raw()));
  GP_TRY(pipeline.model, make_training_graph(plan.spec, runs_forwards_only(plan.policy)));
  GP_TRY(pipeline.model.digest, model_digest(pipeline.model.imported));
  if (plan.model_digest != pipeline.model.digest) return other_model(plan);
  GP_TRY(const std::optional<ir::Profile> profile, profile_of(plan));
  GP_TRY(pipeline.priced, price(pipeline.model, plan, profile ? &*profile : nullptr));
  GP_TRY_VOID(check_labels(plan, pipeline.priced));
  if (!plan.schedule && plan.drain_every > 1) pipeline.order.drain_every = plan.drain_every;
  if (const Status derived = derive(pipeline); !derived) return of_file(derived.problems(), path);
  if (edited) pipeline.machine.notes = {*edited};
  if (edited) pipeline.model.notes.push_back(*edited);
  GP_TRY(pipeline.modules, stage_modules(pipeline));
  return pipeline;
}

std::vector<std::string> files_read(const Pipeline& pipeline) {
  std::vector<std::string> files = pipeline.model.imported.files;
  if (!pipeline.plan.profile.empty()) files.push_back(pipeline.plan.profile.raw());
  return files;
}

bool is_forward_only(const ir::Schedule& schedule) {
  for (const ir::Program& program : schedule.programs)
    for (const ir::Action& action : program.actions)
      if (ir::is_compute(action.op) && action.op != ir::ActionOp::kForward) return false;
  return true;
}

ir::Plan portable_plan(ir::Plan plan) {
  plan.spec.path = ModelText(std::string(wire::kModelLink));
  if (!plan.profile.empty()) plan.profile = ModelText(std::string(wire::kProfileLink));
  return plan;
}

std::string plan_digest(const ir::Plan& plan) { return sha256_of_text(files::print_plan_binary(portable_plan(plan))); }

std::string plan_file_of(const std::string& path) {
  return fs::is_directory(path) ? text(path, "/", wire::kPlanFile) : path;
}

}  // namespace graphpipe::driver
