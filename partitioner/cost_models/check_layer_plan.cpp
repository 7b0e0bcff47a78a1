#include "partitioner/cost_models/check_layer_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "partitioner/cost_models/independent_score.h"

namespace graphpipe::partitioner {

namespace {

class LayerPlanChecker {
 public:
  LayerPlanChecker(const LayerPlanRequest& request, const LayerPlanAnswer& answer)
      : request_(request), graph_(*request.graph), plan_(answer.plan), answer_(answer) {}

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
    if (plan_.stages.empty()) add("the plan has no stages");
    stage_of_.assign(graph_.layers.size(), -1);
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      if (plan_.stages[s].layers.empty()) add(text("stage ", s, " is empty"));
      for (const LayerId layer : plan_.stages[s].layers) {
        if (layer.index() >= graph_.layers.size()) {
          add(text("stage ", s, " has a layer that does not exist"));
        } else if (int& stage = stage_of_[layer.index()]; stage >= 0) {
          add(text("layer ", quoted(graph_.layers[layer].id), " is in stages ", stage, " and ", s));
        } else {
          stage = static_cast<int>(s);
        }
      }
    }
    for (size_t layer = 0; layer < stage_of_.size(); ++layer)
      if (stage_of_[layer] < 0) add(text("layer ", quoted(graph_.layers[LayerId(layer)].id), " is in no stage"));
  }

  void check_order() {
    for (const LayerEdge& edge : graph_.edges) {
      const Layer &from = graph_.layers[edge.from], &to = graph_.layers[edge.to];
      if (from.is_backward || to.is_backward) continue;
      if (stage_of_[edge.from.index()] > stage_of_[edge.to.index()])
        add(text("the edge ", quoted(from.id), " -> ", quoted(to.id), " leads from a later stage to an earlier one"));
    }
    if (graph_.source != LayerSource::kDnnPartitioning || answer_.terms.convention.cut != CutRule::kStageTransfers)
      return;
    std::map<int64_t, int> class_stage;
    for (size_t i = 0; i < stage_of_.size(); ++i)
      if (const auto color = graph_.layers[LayerId(i)].color_class) {
        const auto [known, is_new] = class_stage.emplace(*color, stage_of_[i]);
        if (!is_new && known->second != stage_of_[i]) add(text("class ", *color, " is in two stages"));
      }
  }

  // Quirk E1: the equal split of the original has replicas all the same.
  bool may_replicate() const { return request_.replication || request_.has("E1"); }

  // Stages of one device count as one where it may hold several runs of layers: then they are plain stages.
  bool may_share(const LayerStage& stage) const {
    return request_.non_contiguous && answer_.terms.convention.pools_devices && stage.devices.size() == 1 &&
           stage.variants.empty();
  }

  void check_devices() {
    std::set<int> used;
    const int accelerators = request_.machine.devices();
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      const LayerStage& stage = plan_.stages[s];
      if (stage.replicas < 1 || stage.degree < 1 ||
          stage.devices.size() != static_cast<size_t>(stage.replicas) * static_cast<size_t>(stage.degree))
        add(text("stage ", s, " has ", stage.devices.size(), " devices for ", stage.replicas, " replicas of degree ",
                 stage.degree));
      if (stage.replicas > 1 && !may_replicate()) add(text("stage ", s, " has replicas, which are not allowed"));
      for (const int device : stage.devices) {
        const int first = stage.on_cpu ? accelerators : 0;
        const int last = first + (stage.on_cpu ? request_.machine.cpus : accelerators);
        if (device < first || device >= last) add(text("stage ", s, " uses device ", device, ", which is not there"));
        if (!used.insert(device).second && !may_share(stage)) add(text("device ", device, " is used twice"));
      }
    }
    if (plan_.pipelines > 1 && !may_replicate()) add("the pipeline has copies, which are not allowed");
    if (plan_.pipelines < 1 || static_cast<int64_t>(plan_.pipelines) * static_cast<int64_t>(used.size()) >
                                   accelerators + request_.machine.cpus)
      add(text(plan_.pipelines, " copies of the pipeline do not fit the devices"));
  }

  void check_groups() {
    for (int level = 1; level < static_cast<int>(request_.machine.levels.size()); ++level) {
      int next = 0, units = 0;
      for (const LayerGroup& group : plan_.groups) {
        if (group.level != level) continue;
        if (group.first != next || group.count < 1 || group.replicas < 1)
          return add(text("the groups of level ", level, " do not follow each other"));
        if (group.replicas > 1 && !may_replicate()) add(text("a group of level ", level, " has replicas"));
        next += group.count;
        units += group.replicas;
      }
      if (next == 0 && plan_.groups.empty()) continue;
      if (next != static_cast<int>(plan_.stages.size())) add(text("the groups of level ", level, " leave stages out"));
      const int above = request_.machine.levels[static_cast<size_t>(level)].count;
      if (level + 1 == static_cast<int>(request_.machine.levels.size()) && units > above)
        add(text("level ", level, " has ", units, " groups on ", above, " units"));
    }
  }

  void check_execution() {
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      const LayerStage& stage = plan_.stages[s];
      if (!stage.variants.empty() && stage.variants.size() != stage.layers.size())
        add(text("stage ", s, " does not choose a variant for each layer"));
      for (size_t i = 0; i < stage.layers.size(); ++i) {
        const Layer& layer = graph_.layers[stage.layers[i]];
        if (!stage.on_cpu && !layer.on_accelerator) add(text(quoted(layer.id), " cannot run on an accelerator"));
        if (layer.degrees.empty()) {
          if (stage.degree != 1) add(text(quoted(layer.id), " has no degree ", stage.degree));
          continue;
        }
        const auto found = std::ranges::find(layer.degrees, stage.degree, &LayerDegree::degree);
        const int variant = i < stage.variants.size() ? stage.variants[i] : 0;
        if (found == layer.degrees.end()) add(text(quoted(layer.id), " has no degree ", stage.degree));
        else if (variant < 0 || static_cast<size_t>(variant) >= found->variants.size())
          add(text(quoted(layer.id), " has no variant ", variant));
      }
    }
  }

  // Two versions of the weights suffice where each of equal pipelines has at least as many micro-batches between two
  // updates as stages.
  void check_versions() {
    if (answer_.terms.convention.copies != CopiesRule::kTwoVersions) return;
    const int width = plan_.stages.front().replicas;
    for (size_t s = 0; s < plan_.stages.size(); ++s)
      if (plan_.stages[s].replicas != width)
        add(text("stage ", s, " has ", plan_.stages[s].replicas, " replicas, stage 0 has ", width));
    if (plan_.micro_batches / width < static_cast<int64_t>(plan_.stages.size()))
      add(text(plan_.micro_batches, " micro-batches on ", width, " pipelines are too few for ", plan_.stages.size(),
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

  const LayerPlanRequest& request_;
  const LayerGraph& graph_;
  const LayerPlan& plan_;
  const LayerPlanAnswer& answer_;
  std::vector<int> stage_of_;
  Diagnostics problems_;
};

}  // namespace

Diagnostics check_layer_plan(const LayerPlanRequest& request, const LayerPlanAnswer& answer) {
  return LayerPlanChecker(request, answer).run();
}

double recomputed_objective(const LayerPlanRequest& request, const LayerPlanAnswer& answer) {
  return recompute_score(request, answer).objective;
}

}  // namespace graphpipe::partitioner
