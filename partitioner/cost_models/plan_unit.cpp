#include <algorithm>
#include <cmath>

#include "cost/fold.h"
#include "partitioner/cost_models/plan_by_units.h"
#include "partitioner/cost_models/plan_price.h"

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;

/// CPUs come after the accelerators.
int cpus_of(const PlanRequest& request) {
  return static_cast<int>(std::ranges::count(request.graph->kind_of_device, 1));
}

/// These planners decide what the flags would force, or take the unit of work as it was measured.
Status refuse_forced(const PlannerEntry& planner, const PlanRequest& request) {
  const auto refuse = [&](std::string_view flag, std::string_view why) {
    return Diagnostic{.code = Code::kUsage,
                      .origin = ModelText(std::string(flag)),
                      .message = text("the planner ", planner.name, " ", why),
                      .hint = "leave it out, or use a planner of our own, such as graphpipe"};
  };
  if (request.stages) return refuse("--stages", "decides the number of stages itself");
  if (!request.replicas.empty()) return refuse("--replicas", "decides the replicas itself");
  if (request.shard_optimizer_state) return refuse("--shard-optimizer", "keeps the optimizer state whole");
  if (request.micro_batch && *request.micro_batch != Samples(1) && !planner.traits.divides_unit)
    return refuse("--micro-batch", text("takes micro-batches as they were profiled, here of ",
                                        request.original.profile_batch, " samples"));
  return Ok{};
}

/// A search over the unit of work of a profile: over the nodes of the file, or, where they are joined, over those of
/// the folded graph.
class UnitPlanner {
 public:
  UnitPlanner(const PlannerEntry& planner, const PlanRequest& request)
      : planner_(planner), request_(request), profile_(*request.profile), machine_(machine_of(request)) {
    const bool is_joined = !planner.traits.plans_file_nodes && profile_.format == ir::ProfileFormat::kDnnPartitioning;
    if (is_joined) {
      folded_ = cost::fold_backward(profile_.graph);
      unit_ = unit_of(folded_->graph, Samples(1), machine_.levels.front().bandwidth);
    }
    prices_ = unit_prices(is_joined ? unit_ : profile_.graph);
    prices_.time_unit_seconds = profile_.time_unit_seconds;
  }

  Result<PlanAnswer> run() const {
    GP_TRY(const UnitAnswer found, search_unit(planner_, asked()));
    PlanAnswer answer{.objective = found.objective, .bound = found.bound};
    static_cast<SearchRecord&>(answer) = found;
    OwnObjective own = found;
    own.fits = fits(found);
    answer.candidates.push_back({.assignment = assignment_of(found.plan), .objective = found.objective, .own = own});
    return answer;
  }

 private:
  UnitRequest asked() const {
    UnitRequest asked;
    static_cast<OriginalOptions&>(asked) = request_.original;
    static_cast<SearchTime&>(asked) = request_;
    asked.prices = &prices_;
    asked.machine = machine_;
    asked.machines = machine_ends(request_);
    asked.replication = request_.replication;
    asked.micro_batches = request_.graph->batch.count;
    return asked;
  }

  /// Whether the plan fits the memory, counted as by the project that the profile comes from. Of these projects only
  /// dnn-partitioning knows stages that share a device.
  bool fits(const UnitAnswer& found) const {
    const bool is_placement = profile_.format == ir::ProfileFormat::kDnnPartitioning;
    if (!is_placement && ir::shares_devices(found.plan)) return false;
    CostModel model{.traffic = TrafficRule::kNone, .memory = MemoryRule::kCopiesFrom};
    if (profile_.format == ir::ProfileFormat::kPiper)
      model = {.traffic = TrafficRule::kStageEdges, .memory = MemoryRule::kVariants};
    if (is_placement)
      model = {.traffic = TrafficRule::kStageTransfers, .memory = MemoryRule::kMeasured, .pools_devices = true};
    return price_plan(prices_, found.plan, machine_, model, found.groups).shortfall <= 0;
  }

  /// The replicas of a stage, over all levels and copies, take whole units of work in turn.
  ir::Assignment assignment_of(ir::Assignment plan) const {
    for (ir::StageChoice& choice : plan.choice)
      if (choice.devices.size() > 1) choice.mode = ir::ReplicaMode::kRoundRobin;
    if (folded_) return unfold(*folded_, with_stages_recomputing(unit_, std::move(plan)));
    const bool has_alternatives =
        std::ranges::any_of(profile_.graph.nodes, [](const ir::PlanNode& node) { return !node.alternatives.empty(); });
    if (!has_alternatives) plan.alternative = {};
    else if (plan.alternative.empty())
      for (const PlanNodeId node : profile_.graph.node_ids())
        plan.alternative.push_back(
            alternative_number(profile_.graph.nodes[node], plan.choice[plan.stage_of[node]].degree, 0));
    return plan;
  }

  const PlannerEntry& planner_;
  const PlanRequest& request_;
  const ir::ImportedProfile& profile_;
  const MachineLevels machine_;
  /// Only where nodes are joined.
  std::optional<cost::FoldedGraph> folded_;
  ir::PlanGraph unit_;
  UnitPrices prices_;
};

}  // namespace

MachineLevels machine_of(const PlanRequest& request) {
  const ir::Cluster& cluster = *request.cluster;
  MachineLevels machine;
  machine.cpus = request.profile != nullptr ? cpus_of(request) : 0;
  const auto devices = static_cast<int>(cluster.devices.size()) - machine.cpus;
  int below = 1;
  double slowest = cluster.levels.front().bandwidth.count;
  for (const ir::LinkLevel& level : cluster.levels) {
    // A profile's machine is as the user describes it, levels of one device included.
    if ((level.group > below || request.profile != nullptr) && level.group <= devices)
      machine.levels.push_back({.count = level.group / below, .bandwidth = level.bandwidth.count});
    slowest = std::min(slowest, level.bandwidth.count);
    below = std::max(below, level.group);
  }
  // If the groups do not fill the cluster: one level with the slowest link.
  if (machine.devices() != devices || machine.levels.empty()) machine.levels = {{devices, slowest}};
  if (request.limit_memory)
    for (int d = 0; d < devices; ++d)
      machine.memory = std::min(
          machine.memory, static_cast<double>(cluster.devices[ir::DeviceId(static_cast<size_t>(d))].memory.count));
  return machine;
}

std::vector<int> machine_ends(const PlanRequest& request) {
  const auto& devices = request.cluster->devices;
  const size_t count = devices.size() - (request.profile != nullptr ? static_cast<size_t>(cpus_of(request)) : 0);
  std::vector<int> ends;
  for (size_t d = 0; d + 1 < count; ++d)
    if (devices[ir::DeviceId(d)].host != devices[ir::DeviceId(d + 1)].host) ends.push_back(static_cast<int>(d) + 1);
  if (!ends.empty()) ends.push_back(static_cast<int>(count));
  return ends;
}

Result<PlanAnswer> plan_unit_of_profile(const PlannerEntry& planner, const PlanRequest& request) {
  GP_TRY_VOID(refuse_forced(planner, request));
  return UnitPlanner(planner, request).run();
}

}  // namespace graphpipe::partitioner
