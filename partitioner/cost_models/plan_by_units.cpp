#include "partitioner/cost_models/plan_by_units.h"

#include <algorithm>
#include <map>
#include <set>

#include "cost/lower_bound.h"
#include "partitioner/batch_stages.h"
#include "partitioner/candidates.h"
#include "partitioner/graph/coarsen.h"
#include "support/integer_math.h"
#include "support/stopwatch.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;

/// Budgets of the search at one micro-batch size: with these, wide graphs are searched along a few orders only.
constexpr double kTableBytes = 2e5;
constexpr int64_t kMaxPairsOfSize = 40'000;
/// Most nodes that these planners get; a larger graph is contracted to about kCoarseParts first.
constexpr size_t kMaxNodes = 96;
constexpr double kCoarseParts = 64;

/// Nodes that must share a stage become one; without such nodes a small graph stays as it is.
CoarseGraph contracted_nodes(const ir::PlanGraph& graph) {
  const NodeGroups groups = group_nodes(graph);
  const bool is_small = groups.nodes.size() <= kMaxNodes;
  return contract(graph, is_small ? groups.nodes : coarsen(graph, groups, {.parts = kCoarseParts}));
}

class SizeSweep {
 public:
  SizeSweep(const PlannerEntry& entry, const PlanRequest& request)
      : entry_(entry),
        request_(request),
        small_(contracted_nodes(*request.graph)),
        graph_(small_.graph),
        candidates_(request),
        deadline_(request.time_limit, request.cancel) {}

  Result<PlanAnswer> run() {
    if (!request_.replicas.empty())
      return Diagnostic{.code = Code::kUsage,
                        .message = text("the planner ", entry_.name, " decides the replicas itself"),
                        .hint = "leave --replicas out, or use another planner"};
    // Large micro-batches first: they cost least per sample, and so there is a plan of one when the time runs out.
    std::vector<Samples> sizes = micro_batch_sizes(request_);
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      if (is_promising(*size)) plan_at(*size);
      if (deadline_.passed()) break;
    }
    Result<PlanAnswer> found = candidates_.answer(!deadline_.passed(), watch_.seconds());
    if (!found.ok() && !other_counts_.empty()) return no_such_count();
    GP_TRY(PlanAnswer answer, std::move(found));
    for (PlanCandidate& candidate : answer.candidates) candidate.own = own_objective(candidate.assignment);
    return answer;
  }

 private:
  /// That of the plan's micro-batch size, which is that of the stages that do not work on the whole batch.
  OwnObjective own_objective(const ir::Assignment& assignment) const {
    for (const ir::StageChoice& choice : assignment.choice)
      if (const auto found = objective_at_.find(choice.micro_batch);
          choice.micro_batch < graph_.batch && found != objective_at_.end())
        return found->second;
    return objective_at_.rbegin()->second;
  }

  /// These searches know no number of stages: of each micro-batch size they find the plan that is best by their terms.
  Diagnostic no_such_count() const {
    std::string counts;
    for (const size_t count : other_counts_) counts += text(counts.empty() ? "" : ", ", count);
    return {.code = Code::kNoFeasiblePlan,
            .message = text("the planner ", entry_.name, " decides the number of stages itself, here ", counts),
            .hint = "leave --stages out, or use a planner of our own, such as graphpipe"};
  }

  /// These searches know no nodes that work on the samples of a micro-batch together. Replicas share those of a node
  /// that needs sums over them, if the smallest micro-batch has one for each device; other nodes have none.
  bool may_replicate(Samples micro_batch) const {
    const bool is_large = ir::smallest_micro_batch(graph_.batch, micro_batch) >= std::ssize(request_.cluster->devices);
    const auto may = [&](const ir::PlanNode& node) {
      return node.scope != ir::SampleScope::kMicroBatch || (node.may_have_replicas() && is_large);
    };
    return request_.replication && std::ranges::all_of(graph_.nodes, may);
  }
  bool has_micro_batch_nodes() const {
    return std::ranges::any_of(graph_.nodes,
                               [](const auto& node) { return node.scope == ir::SampleScope::kMicroBatch; });
  }

  /// Whether the work at this micro-batch size leaves room for a shorter step than that of the best plan.
  bool is_promising(Samples micro_batch) const {
    return cost::min_work(graph_, micro_batch) / static_cast<double>(request_.cluster->devices.size()) <
           std::min(candidates_.min_step(), request_.known_step);
  }

  void plan_at(Samples micro_batch) {
    const bool replicates = may_replicate(micro_batch);
    plan_at(micro_batch, replicates);
    // Replicas that share a micro-batch may be slower than these searches think, which give each whole ones.
    if (replicates && has_micro_batch_nodes()) plan_at(micro_batch, false);
  }

  void plan_at(Samples micro_batch, bool replicates) {
    UnitRequest asked;
    asked.machine = machine_of(request_);
    asked.machines = machine_ends(request_);
    const ir::PlanGraph unit = unit_of(graph_, micro_batch, asked.machine.levels.front().bandwidth);
    const UnitPrices prices = unit_prices(unit);
    asked.prices = &prices;
    asked.replication = replicates;
    asked.batch = graph_.batch.count;
    asked.micro_batch = asked.profile_batch = micro_batch.count;
    asked.micro_batches = std::max<int64_t>(1, graph_.batch.count / micro_batch.count);
    asked.time_limit = std::max(0.0, request_.time_limit - watch_.seconds());
    asked.cancel = request_.cancel;
    asked.measure_shortfall = false;
    asked.recompute = request_.recompute != Recompute::kNever;
    // Many sizes are tried, and none may take long.
    asked.memory_budget = kTableBytes;
    asked.max_pairs = kMaxPairsOfSize;
    Result<UnitAnswer> answer = search_unit(entry_, asked);
    if (!answer.ok()) {
      // The planner's own terms of memory may be stricter than ours, which decide in the end: so it is asked once more
      // without a limit.
      asked.machine.memory = kInfinity;
      asked.use_fewer = true;
      answer = search_unit(entry_, asked);
    }
    if (answer.ok()) offer(*answer, unit, micro_batch);
  }

  void offer(const UnitAnswer& answer, const ir::PlanGraph& unit, Samples micro_batch) {
    if (request_.stages && *request_.stages != std::ssize(answer.plan.choice)) {
      other_counts_.insert(answer.plan.choice.size());
      return;
    }
    const int64_t items = ceil_div(graph_.batch.count, micro_batch.count);
    ir::Assignment assignment = with_stages_recomputing(unit, answer.plan);
    const IdMap<ir::StageId, bool> sums = summing_stages(graph_, assignment), whole = batch_stages(graph_, assignment);
    for (const ir::StageId stage : ids<ir::StageId>(assignment.choice.size())) {
      ir::StageChoice& choice = assignment.choice[stage];
      choice.micro_batch = micro_batch;
      const int64_t replicas = std::ssize(choice.devices);
      if (replicas > 1 && items >= replicas && !sums[stage]) choice.mode = ir::ReplicaMode::kRoundRobin;
      else if (replicas > (sums[stage] && whole[stage] ? graph_.batch : micro_batch).count) return;
    }
    separate_batch_nodes(graph_, assignment);
    if (request_.stages && *request_.stages != static_cast<int>(assignment.choice.size())) {
      other_counts_.insert(assignment.choice.size());
      return;
    }
    candidates_.add(expand(small_, request_.graph->nodes.size(), assignment));
    objective_at_[micro_batch] = answer;
  }

  const PlannerEntry& entry_;
  const PlanRequest& request_;
  const CoarseGraph small_;
  const ir::PlanGraph& graph_;
  Candidates candidates_;
  /// Per micro-batch size, of which each offers one plan.
  std::map<Samples, OwnObjective> objective_at_;
  std::set<size_t> other_counts_;  // stages of plans that have not as many as were asked for
  Deadline deadline_;
  const Stopwatch watch_;
};

}  // namespace

Result<PlanAnswer> plan_by_units(const PlannerEntry& planner, const PlanRequest& request) {
  GP_CHECK(planner.search != nullptr);
  return request.profile != nullptr ? plan_unit_of_profile(planner, request) : SizeSweep(planner, request).run();
}

}  // namespace graphpipe::partitioner
