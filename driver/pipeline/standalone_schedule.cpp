#include "driver/pipeline/standalone_schedule.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "driver/cli/usage.h"
#include "driver/pipeline/choose.h"
#include "files/stage_dag.h"
#include "scheduler/build_schedule.h"
#include "support/integer_math.h"

namespace graphpipe::driver {
namespace {

/// Limits of a standalone schedule: the sum of this many actions at this cost stays within the simulator's clock.
constexpr int64_t kMaxActions = 2'000'000;
constexpr double kLargestCost = 1e6;
/// Costs are counted in millionths: what is less than this is rounded too much.
constexpr double kMinCost = 1e-3;

Result<std::vector<double>> numbers_of(const std::string& words) {
  std::vector<double> numbers;
  const char* at = words.data();
  const char* const end = at + words.size();
  while (true) {
    double number = -1;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || !(number >= 0 && number <= kLargestCost))
      return usage("--costs", text("not a list of numbers from 0 to ", kLargestCost), "write F,I,W, such as 1,1,1");
    numbers.push_back(number);
    if (next == end) return numbers;
    if (*next != ',') return usage("--costs", "numbers are separated by commas", "write F,I,W, such as 1,1,1");
    at = next + 1;
  }
}

/// The costs of one stage of a file; those that the file does not say come from --costs.
scheduler::StandaloneStage stage_of(const files::StageDag& dag, size_t stage, const scheduler::PassCosts& costs) {
  const auto price = [&](double cost, bool said) {
    return said && dag.per_sample ? ir::SampleFunction::polynomial(0, cost) : ir::SampleFunction::polynomial(cost, 0);
  };
  scheduler::StandaloneStage out;
  for (const int before : dag.predecessors[stage]) out.predecessors.push_back(ir::StageId(static_cast<size_t>(before)));
  const bool forward = !dag.forward.empty(), backward = !dag.backward.empty();
  out.forward = price(forward ? dag.forward[stage] : costs.forward, forward);
  // The file's backward is divided in the ratio of I to W in --costs.
  const double whole = costs.input_gradient + costs.weight_gradient;
  const double share = whole > 0 ? costs.input_gradient / whole : 0.5;
  out.input_gradient = price(backward ? share * dag.backward[stage] : costs.input_gradient, backward);
  out.weight_gradient = price(backward ? (1 - share) * dag.backward[stage] : costs.weight_gradient, backward);
  out.choice.micro_batch = Samples(dag.micro_batch_size[stage]);
  out.choice.k = dag.k[stage];
  return out;
}

bool is_rounded_away(double cost) { return cost > 0 && cost < kMinCost; }

Status check_dag_costs(const files::StageDag& dag, const std::string& file) {
  bool rounded = dag.latency && is_rounded_away(*dag.latency);
  for (const std::vector<double>& costs : {dag.forward, dag.backward})
    for (size_t stage = 0; stage < costs.size(); ++stage)
      rounded |= is_rounded_away(costs[stage] * static_cast<double>(dag.per_sample ? dag.micro_batch_size[stage] : 1));
  if (!rounded) return Ok{};
  return Diagnostic{.code = Code::kLimitExceeded,
                    .origin = ModelText(file),
                    .message = text("costs of a micro-batch, or a latency, below ", kMinCost, " are rounded away"),
                    .hint = "costs are relative: multiply all, and latency, by the same number"};
}

struct Placed {
  ir::StageGraph graph;
  int ranks = 1;
};

Status check_size(int64_t stages, int64_t micro_batches) {
  if (stages == 0 || micro_batches <= kMaxActions / 3 / stages) return Ok{};
  return Diagnostic{.code = Code::kLimitExceeded,
                    .message = text("up to ", stages, " stages with ", micro_batches, " micro-batches are more than ",
                                    kMaxActions, " actions"),
                    .hint = "take fewer micro-batches: the steady state repeats"};
}

/// Every replica has a device of its own, stage by stage; replicas take micro-batches in turn.
Result<Placed> with_replicas(const files::StageDag& dag, ir::StageGraph graph, const ScheduleOptions& options,
                             const scheduler::Policy& policy) {
  if (policy.shape != scheduler::StageShape::kAny)
    return usage("--policy", text(policy.name, " places stages itself, and the file's have replicas"),
                 "use a policy of any stage graph, such as kfkb or pipedream-rr");
  if (options.ranks > 0 && options.ranks != dag.devices())
    return usage("--ranks", text("the stages and their replicas need ", dag.devices(), " devices"), "leave it out");
  if (options.chunks > 0)
    return usage("--chunks", "every replica of the file's stages has a device of its own", "leave it out");
  size_t device = 0;
  for (const ir::StageId stage : graph.stage_ids()) {
    ir::StageChoice& choice = graph.stages[stage].choice;
    choice.mode = ir::ReplicaMode::kRoundRobin;
    choice.devices.clear();
    for (int replica = 0; replica < dag.replicas[stage.index()]; ++replica)
      choice.devices.push_back(ir::DeviceId(device++));
  }
  return Placed{.graph = scheduler::as_taken_by(policy, std::move(graph)), .ranks = static_cast<int>(device)};
}

Result<Placed> dag_graph(const ScheduleOptions& options, const scheduler::Policy& policy, scheduler::PassCosts& costs) {
  GP_TRY(const files::StageDag dag, files::read_stage_dag(options.dag));
  if (dag.latency && options.latency > 0)
    return usage("--latency", "the stage graph's file says it", "leave it out, or delete latency in the file");
  costs.latency = dag.latency.value_or(costs.latency);
  GP_TRY_VOID(check_dag_costs(dag, options.dag));
  int64_t batch = dag.batch;
  if (batch > 0 && options.micro_batches > 0)
    return usage("--micro-batches", "the stage graph's file says how many",
                 "leave it out, or delete batch and micro_batches in the file");
  const int64_t largest = *std::ranges::max_element(dag.micro_batch_size);
  if (batch == 0 && options.micro_batches == 0)
    return usage("--micro-batches", "the stage graph's file does not say how many", "add --micro-batches M");
  if (batch == 0) batch = options.micro_batches * largest;
  if (batch > std::numeric_limits<int32_t>::max())
    return usage("--micro-batches", text("they have ", batch, " samples, and 2^31 - 1 can be numbered"), "take fewer");
  const auto stages = static_cast<int64_t>(dag.predecessors.size());
  const int64_t smallest = *std::ranges::min_element(dag.micro_batch_size);
  GP_TRY_VOID(check_size(stages, ceil_div(batch, smallest)));
  std::vector<scheduler::StandaloneStage> rows;
  for (size_t stage = 0; stage < dag.predecessors.size(); ++stage) rows.push_back(stage_of(dag, stage, costs));
  if (dag.devices() > stages)
    return with_replicas(dag, scheduler::standalone_graph(rows, Samples(batch)), options, policy);
  const bool folded = policy.shape == scheduler::StageShape::kV;
  const int64_t chunks = options.chunks > 0 ? options.chunks : folded ? 2 : 1;
  const int64_t ranks = options.ranks > 0 ? options.ranks : std::max<int64_t>(1, stages / chunks);
  if (options.chunks > 0 && ranks * options.chunks != stages)
    return usage("--chunks", text(stages, " stages on ", ranks, " devices are not ", options.chunks, " on each"),
                 "leave it out");
  Placed placed{.graph = {}, .ranks = static_cast<int>(ranks)};
  GP_TRY(placed.graph, scheduler::placed_for(policy, scheduler::standalone_graph(rows, Samples(batch)), placed.ranks));
  return placed;
}

Result<Placed> chain_graph(const ScheduleOptions& options, const scheduler::Policy& policy,
                           const scheduler::PassCosts& costs) {
  if (options.ranks == 0) return usage("--ranks", "how many devices?", "add --ranks P, or --dag FILE");
  if (options.micro_batches == 0) return usage("--micro-batches", "how many?", "add --micro-batches M");
  GP_TRY_VOID(check_size(options.ranks * std::max<int64_t>(2, options.chunks), options.micro_batches));
  Placed placed{.graph = {}, .ranks = static_cast<int>(options.ranks)};
  GP_TRY(placed.graph, scheduler::policy_schedule(policy, {.ranks = placed.ranks,
                                                           .chunks = static_cast<int>(options.chunks),
                                                           .micro_batches = options.micro_batches,
                                                           .costs = costs}));
  return placed;
}

}  // namespace

Result<scheduler::PassCosts> pass_costs(const ScheduleOptions& options) {
  GP_TRY(const std::vector<double> numbers, numbers_of(options.costs));
  if (numbers.size() != 3) return usage("--costs", "needs three numbers", "write F,I,W, such as 1,1,1");
  const double largest = std::ranges::max(numbers);
  if (largest == 0) return usage("--costs", "nothing costs anything", "write F,I,W, such as 1,1,1");
  const bool costs_rounded = std::ranges::any_of(numbers, is_rounded_away);
  if (costs_rounded || is_rounded_away(options.latency))
    return usage(costs_rounded ? "--costs" : "--latency", text("costs below ", kMinCost, " are rounded away"),
                 "costs are relative: multiply all of --costs, and --latency, by the same number");
  return scheduler::PassCosts{
      .forward = numbers[0], .input_gradient = numbers[1], .weight_gradient = numbers[2], .latency = options.latency};
}

Result<StandaloneSchedule> make_standalone(const ScheduleOptions& options) {
  GP_TRY(scheduler::PassCosts costs, pass_costs(options));
  const scheduler::Policy* policy = scheduler::find_policy(options.policy);
  GP_CHECK(policy != nullptr);  // the flag takes known names only
  GP_TRY_VOID(check_order(options.policy, options.order));
  GP_TRY(Placed placed,
         options.dag.empty() ? chain_graph(options, *policy, costs) : dag_graph(options, *policy, costs));
  ir::Cluster cluster = scheduler::standalone_cluster(placed.ranks, costs.latency);
  scheduler::BuildOptions building = ordered_as(options.order);
  building.policy = options.policy;
  building.search = options.search;
  building.simulation.ticks_per_second = scheduler::kTicksPerUnit;
  GP_TRY(scheduler::BuiltSchedule built, scheduler::build_schedule(placed.graph, cluster, building));
  StandaloneSchedule standalone{.graph = std::move(placed.graph),
                                .cluster = std::move(cluster),
                                .schedule = std::move(built.schedule),
                                .timeline = std::move(built.timeline),
                                .metrics = {}};
  standalone.metrics =
      scheduler::schedule_metrics(standalone.graph, standalone.cluster, standalone.schedule, standalone.timeline);
  return standalone;
}

Result<StandaloneSchedule> simulate_standalone(ir::StageGraph graph, ir::Cluster cluster, ir::Schedule schedule) {
  GP_TRY(scheduler::Timeline timeline, scheduler::simulate(graph, cluster, schedule,
                                                           {.ticks_per_second = scheduler::kTicksPerUnit,
                                                            .synchronous = !ir::is_asynchronous(schedule)}));
  StandaloneSchedule standalone{.graph = std::move(graph),
                                .cluster = std::move(cluster),
                                .schedule = std::move(schedule),
                                .timeline = std::move(timeline),
                                .metrics = {}};
  standalone.metrics =
      scheduler::schedule_metrics(standalone.graph, standalone.cluster, standalone.schedule, standalone.timeline);
  return standalone;
}

}  // namespace graphpipe::driver
