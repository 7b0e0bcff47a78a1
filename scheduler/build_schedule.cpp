#include "scheduler/build_schedule.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cost/in_flight.h"
#include "scheduler/analysis/start_slack.h"
#include "scheduler/policies/schedule_local_search.h"

namespace graphpipe::scheduler {
namespace {

/// Of a schedule of several batches: building longer ones takes minutes.
constexpr int64_t kMaxMicroBatches = 65'536;
/// The plan file, in which a forward brings three hundred bytes for each of its four or five actions, stays below what
/// is read.
constexpr int64_t kMaxForwards = 131'072;

// Where nobody says after how many batches an asynchronous schedule drains.
int64_t usual_drain_every(const StageGraph& stages) {
  return std::clamp<int64_t>(kMicroBatchesPerDrain / ir::max_micro_batches(stages), 1, kUsualDrainEvery);
}

Status check_length(const StageGraph& stages, int64_t batches) {
  const int64_t micro_batches = ir::max_micro_batches(stages);
  if (batches > 1 && micro_batches > kMaxMicroBatches / batches)
    return Diagnostic{
        .code = Code::kBadPlan,
        .message = text(batches, " batches of ", micro_batches, " micro-batches between two drains make a schedule of ",
                        batches * micro_batches, "; at most ", kMaxMicroBatches, " are ordered"),
        .hint = text("pass --drain-every ", std::max<int64_t>(1, kMaxMicroBatches / micro_batches), " or less")};
  int64_t forwards = 0;
  for (const StageId stage : stages.stage_ids()) forwards += ir::micro_batch_count(stages, stage);
  if (forwards <= kMaxForwards / batches) return Ok{};
  return Diagnostic{
      .code = Code::kLimitExceeded,
      .message = text(stages.stages.size(), stages.stages.size() == 1 ? " stage" : " stages", " with ", micro_batches,
                      " micro-batches run ", forwards * batches, " forwards in a step; at most ", kMaxForwards,
                      " are ordered"),
      .hint = "pass a larger --micro-batch or a smaller --batch; runs add up gradients over steps (--accumulate)"};
}

Diagnostic unknown_policy(const std::string& name) {
  std::string known;
  for (const Policy& policy : all_policies()) known += (known.empty() ? "" : ", ") + std::string(policy.name);
  return Diagnostic{.code = Code::kUsage,
                    .message = text("there is no policy ", quoted(ModelText(name))),
                    .hint = text("use one of ", known)};
}

/// What the policy promises of weight versions.
VersionClaims promises_of(const Policy& policy, const BuildOptions& options) {
  const bool has_two = policy.versions == ir::WeightVersions::kTwo;
  return {.synchronous = !policy.asynchronous,
          .vertical_sync = policy.asynchronous && options.choices.vertical_sync,
          .delayed_updates = has_two,
          .max_versions = has_two ? 2 : 0};
}

}  // namespace

Result<BuiltSchedule> build_schedule(const StageGraph& given, const ir::Cluster& cluster, const BuildOptions& options) {
  const Policy* policy = find_policy(options.policy);
  if (policy == nullptr) return unknown_policy(options.policy);
  StageGraph graph = policy->forward_only ? without_backward(given) : given;
  graph.versions = versions_of(*policy, options.choices.vertical_sync);
  const PolicyRequest request{.graph = graph,
                              .cluster = cluster,
                              .in_flight = options.in_flight,
                              .choices = options.choices,
                              .searched_actions = options.searched_actions,
                              .lowering = options.lowering,
                              .is_over = options.is_over};
  GP_TRY(Schedule compute, policy->order(request));
  if (options.search)
    compute = improve_order(graph, cluster, std::move(compute),
                            {.max_actions = options.searched_actions, .lowering = options.lowering});
  GP_TRY(BuiltSchedule built, lower_order(graph, cluster, std::move(compute), options, promises_of(*policy, options)));
  if (policy->delays_starts) {
    GP_TRY_VOID(delay_starts(graph, cluster, options.simulation, built.schedule, built.timeline));
    built.memory = memory_of(graph, built.schedule, options.memory);
  }
  return built;
}

Result<BuiltSchedule> lower_order(const StageGraph& graph, const ir::Cluster& cluster, Schedule compute,
                                  const BuildOptions& options, const VersionClaims& claims) {
  GP_TRY(LoweredSchedule lowered, lower_transfers(graph, std::move(compute), options.lowering));
  GP_TRY_VOID(check_schedule(graph, cluster, lowered.schedule, {.memory = options.memory, .claims = claims}));
  GP_TRY(Timeline timeline, simulate(graph, cluster, lowered, options.simulation));
  std::vector<DeviceMemory> memory = memory_of(graph, lowered.schedule, options.memory);
  return BuiltSchedule{std::move(lowered.schedule), std::move(timeline), std::move(memory), graph.batches};
}

namespace {

Result<OrderedBatches> order_so_many(const StageGraph& stages, const ir::Cluster& cluster, const BuildOptions& options,
                                     int64_t batches) {
  GP_TRY(StageGraph repeated, ir::with_batches(stages, batches));
  GP_TRY(BuiltSchedule built, build_schedule(repeated, cluster, options));
  return OrderedBatches{.stages = std::move(repeated), .built = std::move(built)};
}

// With as many samples in flight as memory lets the stages and their versions of weights have, where the policy itself
// fills the pipeline.
Result<OrderedBatches> order_throttled(StageGraph stages, const ir::Cluster& cluster, const Policy& policy,
                                       BuildOptions options, int64_t batches) {
  stages.versions = versions_of(policy, options.choices.vertical_sync);
  options.in_flight = cost::in_flight(stages, cluster).samples;
  return order_so_many(stages, cluster, options, batches);
}

}  // namespace

Result<OrderedBatches> order_batches(const StageGraph& stages, const ir::Cluster& cluster, const BuildOptions& options,
                                     int64_t drain_every) {
  const Policy* policy = find_policy(options.policy);
  const bool is_asynchronous = policy != nullptr && policy->asynchronous;
  const int64_t max_batches = !is_asynchronous ? 1 : drain_every > 0 ? drain_every : usual_drain_every(stages);
  GP_TRY_VOID(check_length(stages, max_batches));
  // The more batches between two drains, the more weight versions and samples are in flight.
  int64_t batches = max_batches;
  Result<OrderedBatches> best = order_so_many(stages, cluster, options, batches);
  while (!best && drain_every == 0 && batches > 1 && options.choices.update == Samples(0))
    best = order_so_many(stages, cluster, options, batches /= 2);
  if (!is_asynchronous || !options.in_flight.empty() || (best && batches == max_batches)) return best;
  Result<OrderedBatches> throttled = order_throttled(stages, cluster, *policy, options, max_batches);
  if (throttled && (!best || throttled->built.step_seconds() < best->built.step_seconds())) return throttled;
  return best;
}

bool peak_reaches(const BuiltSchedule& built, const ir::Cluster& cluster, double part) {
  for (size_t i = 0; i < built.memory.size(); ++i) {
    const ir::Device& device = cluster.devices[built.schedule.programs[i].device];
    if (static_cast<double>(built.memory[i].peak.count) > part * static_cast<double>(device.memory.count)) return true;
  }
  return false;
}

Result<OrderedBatches> order_within_memory(const StageGraph& stages, const ir::Cluster& cluster,
                                           const BuildOptions& options, int64_t drain_every) {
  Result<OrderedBatches> best = order_batches(stages, cluster, options, drain_every);
  const bool may_be_limited = best ? peak_reaches(best->built, cluster, kMemoryLimitedShare)
                                   : best.problems().front().code == Code::kNoFeasiblePlan;
  if (!may_be_limited) return best;
  for (const double times : {std::numeric_limits<double>::infinity(), kMemoryBoundSlack}) {
    Result<OrderedBatches> looser = order_batches(stages, ir::with_memory(cluster, times), options, drain_every);
    if (!looser || peak_reaches(looser->built, cluster, 1)) continue;
    if (!best || looser->built.step_seconds() < best->built.step_seconds()) best = std::move(looser);
    break;  // what fits with less memory holds less in flight
  }
  return best;
}

}  // namespace graphpipe::scheduler
