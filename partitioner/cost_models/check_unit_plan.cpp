#include "partitioner/cost_models/check_unit_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "partitioner/cost_models/independent_score.h"
#include "partitioner/cost_models/quirks.h"

namespace graphpipe::partitioner {

namespace {

class UnitPlanChecker {
 public:
  UnitPlanChecker(const UnitRequest& request, const UnitAnswer& answer)
      : request_(request), graph_(*request.prices->graph), plan_(answer.plan), answer_(answer) {}

  Diagnostics run() {
    check_partition();
    if (problems_.empty()) {
      check_order();
      check_devices();
      check_groups();
      check_execution();
      check_versions();
    }
    if (problems_.empty()) check_numbers();
    return std::move(problems_);
  }

 private:
  void add(std::string message) {
    problems_.push_back({.code = Code::kBadPlan,
                         .message = std::move(message),
                         .hint = "let the planner make the plan again, or correct its stages"});
  }

  void check_partition() {
    if (plan_.choice.empty()) add("the plan has no stages");
    if (plan_.stage_of.size() != graph_.nodes.size())
      return add(text("the plan places ", plan_.stage_of.size(), " of ", graph_.nodes.size(), " nodes"));
    if (!plan_.alternative.empty() && plan_.alternative.size() != graph_.nodes.size())
      return add(
          text("the plan has alternatives for ", plan_.alternative.size(), " of ", graph_.nodes.size(), " nodes"));
    std::vector<bool> is_used(plan_.choice.size(), false);
    for (const ir::PlanNodeId node : graph_.node_ids()) {
      const ir::StageId stage = plan_.stage_of[node];
      if (stage.index() < is_used.size()) is_used[stage.index()] = true;
      else add(text("layer ", quoted(graph_.nodes[node].label), " is in no stage"));
    }
    for (size_t s = 0; s < is_used.size(); ++s)
      if (!is_used[s]) add(text("stage ", s, " is empty"));
  }

  void check_order() {
    for (const auto& [reads, read] : request_.prices->edges) {
      const ir::PlanNodeId a = request_.prices->nodes[reads], b = request_.prices->nodes[read];
      const ir::PlanNode &from = graph_.nodes[a], &to = graph_.nodes[b];
      if (from.is_backward || to.is_backward) continue;
      if (plan_.stage_of[a] > plan_.stage_of[b])
        add(text("the edge ", quoted(from.label), " -> ", quoted(to.label),
                 " leads from a later stage to an earlier one"));
    }
    if (answer_.model.traffic != TrafficRule::kStageTransfers) return;
    for (size_t color = 0; color < graph_.colocated.size(); ++color)
      for (const ir::PlanNodeId node : graph_.colocated[color])
        if (plan_.stage_of[node] != plan_.stage_of[graph_.colocated[color].front()])
          return add(text("class ", color, " is in two stages"));
  }

  // Quirk E1: the original's equal split has replicas even where they are forbidden.
  bool may_replicate() const { return request_.replication || request_.has(quirks::kReplicasAlways); }

  // Only plain stages, on one device at degree 1, may share it, and only where a device may hold several runs of nodes.
  bool may_share(const ir::StageChoice& stage) const {
    return request_.non_contiguous && answer_.model.pools_devices && stage.devices.size() == 1 && stage.degree == 1 &&
           plan_.alternative.empty();
  }

  bool is_on_cpu(const ir::StageChoice& stage) const {
    return stage.devices.front().index() >= static_cast<size_t>(request_.machine.devices());
  }

  void check_devices() {
    std::set<size_t> used;
    const auto accelerators = static_cast<size_t>(request_.machine.devices());
    const size_t all = accelerators + static_cast<size_t>(request_.machine.cpus);
    for (size_t s = 0; s < plan_.choice.size(); ++s) {
      const ir::StageChoice& stage = plan_.choice[ir::StageId(s)];
      if (stage.devices.empty() || stage.degree < 1)
        return add(text("stage ", s, " has ", stage.devices.size(), " replicas of degree ", stage.degree));
      if (stage.devices.size() > 1 && !may_replicate()) add(text("stage ", s, " has replicas, which are not allowed"));
      const size_t end = is_on_cpu(stage) ? all : accelerators;
      for (const ir::DeviceId first : stage.devices)
        for (size_t device = first.index(); device < first.index() + static_cast<size_t>(stage.degree); ++device) {
          if (device >= end || (is_on_cpu(stage) && device < accelerators))
            add(text("stage ", s, " uses device ", device, ", which is not there"));
          if (!used.insert(device).second && !may_share(stage)) add(text("device ", device, " is used twice"));
        }
    }
  }

  void check_groups() {
    for (int level = 1; level < static_cast<int>(request_.machine.levels.size()); ++level) {
      int next = 0, units = 0;
      for (const StageGroup& group : answer_.groups) {
        if (group.level != level) continue;
        if (group.first != next || group.count < 1 || group.replicas < 1)
          return add(text("the groups of level ", level, " do not follow each other"));
        if (group.replicas > 1 && !may_replicate()) add(text("a group of level ", level, " has replicas"));
        next += group.count;
        units += group.replicas;
      }
      if (next == 0 && answer_.groups.empty()) continue;
      if (next != static_cast<int>(plan_.choice.size())) add(text("the groups of level ", level, " leave stages out"));
      const int above = request_.machine.levels[static_cast<size_t>(level)].count;
      if (level + 1 == static_cast<int>(request_.machine.levels.size()) && units > above)
        add(text("level ", level, " has ", units, " groups on ", above, " units"));
    }
    check_copies();
  }

  // The devices of a stage are those of all copies that the groups around it make.
  void check_copies() {
    for (size_t s = 0; s < plan_.choice.size(); ++s) {
      size_t copies = 1;
      for (const StageGroup& group : answer_.groups)
        if (static_cast<int>(s) >= group.first && static_cast<int>(s) - group.first < group.count)
          copies *= static_cast<size_t>(group.replicas);
      if (plan_.choice[ir::StageId(s)].devices.size() % copies != 0)
        add(text("stage ", s, " has other devices than ", copies, " copies of a group"));
    }
  }

  void check_execution() {
    for (const ir::PlanNodeId id : graph_.node_ids()) {
      const ir::PlanNode& node = graph_.nodes[id];
      const ir::StageChoice& stage = plan_.choice[plan_.stage_of[id]];
      const int chosen = plan_.alternative.empty() ? 0 : plan_.alternative[id];
      const auto has_degree = [&](const ir::NodeAlternative& way) { return way.degree == stage.degree; };
      if (!is_on_cpu(stage) && !node.refused_kinds.empty())
        add(text(quoted(node.label), " cannot run on an accelerator"));
      if (chosen < 0 || chosen >= std::max<std::ptrdiff_t>(1, std::ssize(node.alternatives)))
        add(text(quoted(node.label), " has no alternative ", chosen));
      else if (node.alternatives.empty() ? stage.degree != 1 : std::ranges::none_of(node.alternatives, has_degree))
        add(text(quoted(node.label), " has no degree ", stage.degree));
      else if (!plan_.alternative.empty() && !node.alternatives.empty() &&
               !has_degree(node.alternatives[static_cast<size_t>(chosen)]))
        add(text(quoted(node.label), " takes alternative ", chosen, ", which is not of degree ", stage.degree));
    }
  }

  // Two versions of the weights suffice if all pipelines are equal and each gets at least as many micro-batches between
  // two updates as it has stages.
  void check_versions() {
    if (answer_.model.memory != MemoryRule::kTwoVersions) return;
    const std::ptrdiff_t width = std::ssize(plan_.choice[ir::StageId(0u)].devices);
    for (size_t s = 0; s < plan_.choice.size(); ++s)
      if (const auto replicas = std::ssize(plan_.choice[ir::StageId(s)].devices); replicas != width)
        add(text("stage ", s, " has ", replicas, " replicas, stage 0 has ", width));
    if (request_.micro_batches / width < std::ssize(plan_.choice))
      add(text(request_.micro_batches, " micro-batches on ", width, " pipelines are too few for ", plan_.choice.size(),
               " stages with two versions of the weights"));
  }

  void check_numbers() {
    const RecomputedScore score = recompute_score(request_, answer_);
    if (score.memory > request_.machine.memory * (1 + kObjectiveTolerance))
      add(text("a device needs ", score.memory, " bytes of ", request_.machine.memory));
    const double difference = std::abs(score.objective - answer_.objective);
    if (!(difference <= kObjectiveTolerance * std::abs(score.objective)))
      add(text("the planner claims ", answer_.objective, ", the plan gives ", score.objective));
    const double slack = 1e-9 * std::abs(answer_.objective);
    const bool beyond = answer_.larger_is_better ? answer_.bound < answer_.objective - slack
                                                 : answer_.bound > answer_.objective + slack;
    if (beyond || std::isnan(answer_.bound)) add(text("the bound ", answer_.bound, " is beyond ", answer_.objective));
  }

  const UnitRequest& request_;
  const ir::PlanGraph& graph_;
  const ir::Assignment& plan_;
  const UnitAnswer& answer_;
  Diagnostics problems_;
};

}  // namespace

Diagnostics check_unit_plan(const UnitRequest& request, const UnitAnswer& answer) {
  return UnitPlanChecker(request, answer).run();
}

double recomputed_objective(const UnitRequest& request, const UnitAnswer& answer) {
  return recompute_score(request, answer).objective;
}

}  // namespace graphpipe::partitioner
