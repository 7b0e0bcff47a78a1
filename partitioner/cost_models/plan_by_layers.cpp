#include "partitioner/cost_models/plan_by_layers.h"

#include <algorithm>
#include <map>

#include "cost/lower_bound.h"
#include "partitioner/batch_stages.h"
#include "partitioner/candidates.h"
#include "partitioner/cost_models/layer_request.h"
#include "partitioner/cost_models/layer_view.h"
#include "partitioner/graph/coarsen.h"
#include "support/stopwatch.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;

/// Of one micro-batch size; wide graphs are then searched along a few orders.
constexpr double kTableBytes = 2e5;
constexpr int64_t kMaxAdaptedPairs = 40'000;
/// Layers that these planners get; a larger graph is contracted to about so many first.
constexpr size_t kMaxLayers = 96;
constexpr double kCoarseParts = 64;

/// Nodes that must share a stage become one layer; without such nodes, and in a small graph, layers are nodes.
CoarseGraph contracted_layers(const ir::PlanGraph& graph) {
  const Items items = make_items(graph);
  const bool is_small = items.nodes.size() <= kMaxLayers;
  return contract(graph, is_small ? items.nodes : coarsen(graph, items, {.parts = kCoarseParts}));
}

class SizeSweep {
 public:
  SizeSweep(const PlannerEntry& row, const PlanRequest& request)
      : row_(row),
        request_(request),
        small_(contracted_layers(*request.graph)),
        graph_(small_.graph),
        candidates_(request),
        deadline_(request.time_limit, request.cancel) {}

  Result<PlanAnswer> run() {
    if (!request_.replicas.empty())
      return Diagnostic{.code = Code::kUsage,
                        .message = text("the planner ", row_.name, " decides the replicas itself"),
                        .hint = "leave --replicas out, or use another planner"};
    // Large micro-batches first: they are the cheap ones, and a plan of one is there when the time runs out.
    std::vector<Samples> sizes = micro_batch_sizes(request_);
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      if (is_promising(*size)) plan_at(*size);
      if (deadline_.passed()) break;
    }
    GP_TRY(PlanAnswer answer, candidates_.answer(!deadline_.passed(), watch_.seconds()));
    for (PlanCandidate& candidate : answer.candidates) candidate.own = own_terms_of(candidate.assignment);
    return answer;
  }

 private:
  /// Of the micro-batch of the stages that do not work on the whole batch.
  OwnTerms own_terms_of(const ir::Assignment& assignment) const {
    for (const ir::StageChoice& choice : assignment.choice)
      if (const auto terms = own_terms_.find(choice.micro_batch);
          choice.micro_batch < graph_.batch && terms != own_terms_.end())
        return terms->second;
    return own_terms_.rbegin()->second;
  }

  bool may_replicate() const {
    const auto mixes = [](const ir::PlanNode& node) { return node.scope == ir::SampleScope::kMicroBatch; };
    return request_.replication && std::ranges::none_of(graph_.nodes, mixes);
  }

  /// Whether the work of so small micro-batches leaves room for a better step than that of the best plan.
  bool is_promising(Samples micro_batch) const {
    return cost::least_work(graph_, micro_batch) / static_cast<double>(request_.cluster->devices.size()) <
           std::min(candidates_.least_step(), request_.known_step);
  }

  void plan_at(Samples micro_batch) {
    LayerPlanRequest layers;
    layers.machine = machine_of(request_);
    layers.machines = machine_ends(request_);
    const double bandwidth = layers.machine.levels.front().bandwidth;
    const LayerGraph graph = layer_graph_of(graph_, micro_batch, bandwidth);
    layers.graph = &graph;
    layers.replication = may_replicate();
    layers.batch = graph_.batch.count;
    layers.micro_batch = layers.profile_batch = micro_batch.count;
    layers.micro_batches = std::max<int64_t>(1, graph_.batch.count / micro_batch.count);
    layers.time_limit = std::max(0.0, request_.time_limit - watch_.seconds());
    layers.cancel = request_.cancel;
    layers.measure_shortfall = false;
    // Many sizes are tried, and none may take long.
    layers.memory_budget = kTableBytes;
    layers.max_pairs = kMaxAdaptedPairs;
    Result<LayerPlanAnswer> answer = plan_layers(row_, layers);
    if (!answer.ok()) {
      // Its own terms of memory may be stricter than ours, which have the last word.
      layers.machine.memory = kInfinity;
      layers.use_fewer = true;
      answer = plan_layers(row_, layers);
    }
    if (answer.ok()) offer(*answer, layers.machine, micro_batch);
  }

  void offer(const LayerPlanAnswer& answer, const LayerMachine& machine, Samples micro_batch) {
    const auto stages = static_cast<int>(answer.plan.stages.size());
    if (request_.stages && *request_.stages != stages) return;
    const int64_t items = (graph_.batch.count + micro_batch.count - 1) / micro_batch.count;
    ir::Assignment assignment;
    assignment.stage_of.resize(graph_.nodes.size());
    for (size_t s = 0; s < answer.plan.stages.size(); ++s) {
      const LayerStage& stage = answer.plan.stages[s];
      ir::StageChoice choice{.micro_batch = micro_batch, .recompute = stage.recompute};
      for (const int variant : stage.variants) choice.recompute = choice.recompute || variant > 0;
      for (const int device : devices_of(answer.plan, s, machine))
        choice.devices.push_back(ir::DeviceId(static_cast<size_t>(device)));
      const auto replicas = static_cast<int64_t>(choice.devices.size());
      if (replicas > 1 && items >= replicas) choice.mode = ir::ReplicaMode::kRoundRobin;
      else if (replicas > micro_batch.count) return;
      for (const LayerId layer : stage.layers) assignment.stage_of[PlanNodeId(layer.index())] = ir::StageId(s);
      assignment.choice.push_back(std::move(choice));
    }
    separate_batch_nodes(graph_, assignment);
    if (request_.stages && *request_.stages != static_cast<int>(assignment.choice.size())) return;
    candidates_.add(expand(small_, request_.graph->nodes.size(), assignment));
    own_terms_[micro_batch] = {
        .objective = answer.objective, .bound = answer.bound, .gap = answer.gap(), .unit = answer.unit};
  }

  const PlannerEntry& row_;
  const PlanRequest& request_;
  const CoarseGraph small_;
  const ir::PlanGraph& graph_;
  Candidates candidates_;
  /// One plan of each micro-batch size is offered.
  std::map<Samples, OwnTerms> own_terms_;
  Deadline deadline_;
  const Stopwatch watch_;
};

}  // namespace

Result<PlanAnswer> plan_by_layers(const PlannerEntry& planner, const PlanRequest& request) {
  GP_CHECK(planner.search != nullptr);
  return request.profile != nullptr ? plan_unit_of_profile(planner, request) : SizeSweep(planner, request).run();
}

}  // namespace graphpipe::partitioner
