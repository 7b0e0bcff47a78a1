#include <algorithm>
#include <cmath>
#include <set>

#include "cost/fold.h"
#include "partitioner/cost_models/layer_cost.h"
#include "partitioner/cost_models/layer_request.h"
#include "partitioner/cost_models/layer_view.h"
#include "partitioner/cost_models/plan_by_layers.h"

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
  if (request.micro_batch && *request.micro_batch != Samples(1) && planner.name != "dapple")
    return refuse("--micro-batch", text("takes micro-batches as they were profiled, here of ",
                                        request.original.profile_batch, " samples"));
  return Ok{};
}

bool shares_devices(const LayerPlan& plan) {
  std::set<int> taken;
  for (const LayerStage& stage : plan.stages)
    for (const int device : stage.devices)
      if (!taken.insert(device).second) return true;
  return false;
}

/// A search over the unit of work of a profile. Its layers are the nodes in the order of the file, or, where they are
/// joined, those of the folded graph.
class UnitPlanner {
 public:
  UnitPlanner(const PlannerEntry& planner, const PlanRequest& request)
      : planner_(planner), request_(request), profile_(*request.profile), machine_(machine_of(request)) {
    const bool is_joined = planner.name != "max-throughput" && profile_.format == ir::ProfileFormat::kDnnPartitioning;
    if (!is_joined) {
      layers_ = layers_of(profile_);
      for (const PlanNodeId node : profile_.graph.file_order.nodes) members_.push_back({node});
      return;
    }
    folded_ = cost::fold_backward(profile_.graph);
    layers_ = layer_graph_of(folded_->graph, Samples(1), machine_.levels.front().bandwidth);
    layers_.time_unit_seconds = profile_.time_unit_seconds;
    members_.resize(layers_.layers.size());
    for (const PlanNodeId node : profile_.graph.node_ids())
      members_[LayerId(folded_->node_of[node].index())].push_back(node);
  }

  Result<PlanAnswer> run() const {
    GP_TRY(const LayerPlanAnswer found, plan_layers(planner_, layer_request()));
    GP_TRY_VOID(check_degrees(found.plan));
    PlanAnswer answer{.objective = found.objective,
                      .bound = found.bound,
                      .complete = found.complete,
                      .stopped = found.stopped,
                      .states = found.states,
                      .pairs = found.pairs,
                      .search_seconds = found.search_seconds};
    const OwnTerms own{.objective = found.objective,
                       .bound = found.bound,
                       .gap = found.gap(),
                       .unit = found.unit,
                       .fits = fits(found.plan)};
    answer.candidates.push_back({.assignment = assignment_of(found.plan), .objective = found.objective, .own = own});
    return answer;
  }

 private:
  LayerPlanRequest layer_request() const {
    LayerPlanRequest layers;
    static_cast<OriginalOptions&>(layers) = request_.original;
    layers.graph = &layers_;
    layers.machine = machine_;
    layers.machines = machine_ends(request_);
    layers.replication = request_.replication;
    layers.micro_batches = request_.graph->batch.count;
    layers.time_limit = request_.time_limit;
    layers.cancel = request_.cancel;
    return layers;
  }

  /// Planners that know nothing of degrees take every layer on one device.
  Status check_degrees(const LayerPlan& plan) const {
    for (const LayerStage& stage : plan.stages)
      for (const LayerId id : stage.layers) {
        const Layer& layer = layers_.layers[id];
        if (layer.degrees.empty() || std::ranges::count(layer.degrees, stage.degree, &LayerDegree::degree) > 0)
          continue;
        return Diagnostic{.code = Code::kUsage,
                          .message = text("the layer ", quoted(layer.id), " has no price on one device"),
                          .hint = "use the planner piper, which divides layers over devices"};
      }
    return Ok{};
  }

  /// As the project counts memory that the profile comes from. Of these only dnn-partitioning knows stages that share a
  /// device.
  bool fits(const LayerPlan& plan) const {
    const bool is_placement = profile_.format == ir::ProfileFormat::kDnnPartitioning;
    if (!is_placement && shares_devices(plan)) return false;
    LayerConvention convention{.cut = CutRule::kNone, .copies = CopiesRule::kFrom};
    if (profile_.format == ir::ProfileFormat::kPiper)
      convention = {.cut = CutRule::kStageEdges, .copies = CopiesRule::kVariants};
    if (is_placement)
      convention = {.cut = CutRule::kStageTransfers, .copies = CopiesRule::kOnce, .pools_devices = true};
    return price_layer_plan(layers_, plan, machine_, convention).shortfall <= 0;
  }

  /// Replicas of all levels and copies together take whole units of work in turn.
  ir::Assignment assignment_of(const LayerPlan& plan) const {
    ir::Assignment out;
    out.stage_of.resize(profile_.graph.nodes.size());
    const bool has_alternatives =
        std::ranges::any_of(profile_.graph.nodes, [](const ir::PlanNode& node) { return !node.alternatives.empty(); });
    if (has_alternatives) out.alternative.resize(out.stage_of.size());
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      const LayerStage& stage = plan.stages[s];
      ir::StageChoice choice{.degree = stage.degree, .recompute = stage.recompute};
      for (const int device : devices_of(plan, s, machine_)) choice.devices.emplace_back(static_cast<size_t>(device));
      if (choice.devices.size() > 1) choice.mode = ir::ReplicaMode::kRoundRobin;
      for (size_t i = 0; i < stage.layers.size(); ++i) {
        const int variant = stage.variants.empty() ? 0 : stage.variants[i];
        if (folded_) choice.recompute = choice.recompute || variant > 0;
        for (const PlanNodeId node : members_[stage.layers[i]]) {
          out.stage_of[node] = ir::StageId(s);
          if (has_alternatives) out.alternative[node] = alternative_of(node, stage.degree, variant);
        }
      }
      out.choice.push_back(std::move(choice));
    }
    return out;
  }

  /// The variant among the alternatives of all degrees; 0 where there are none.
  int alternative_of(PlanNodeId node, int degree, int variant) const {
    const auto& ways = profile_.graph.nodes[node].alternatives;
    const auto first = std::ranges::find(ways, degree, &ir::NodeAlternative::degree);
    return first == ways.end() ? 0 : static_cast<int>(first - ways.begin()) + variant;
  }

  const PlannerEntry& planner_;
  const PlanRequest& request_;
  const ir::ImportedProfile& profile_;
  const LayerMachine machine_;
  LayerGraph layers_;
  /// Where layers are joined.
  std::optional<cost::FoldedGraph> folded_;
  IdMap<LayerId, std::vector<PlanNodeId>> members_;
};

}  // namespace

LayerMachine machine_of(const PlanRequest& request) {
  const ir::Cluster& cluster = *request.cluster;
  LayerMachine machine;
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
  // Groups that do not fill the cluster: one level with the slowest link.
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
