#include "partitioner/cost_models/layer_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

namespace graphpipe::partitioner {

namespace {

/// A run of stages: one stage at the innermost level, one group at an outer one.
struct Unit {
  int first = 0, count = 1, replicas = 1;
};

class LayerPricer {
 public:
  LayerPricer(const LayerGraph& graph, const LayerPlan& plan, const LayerMachine& machine,
              const LayerConvention& convention)
      : graph_(graph), plan_(plan), machine_(machine), convention_(convention), adjacency_(adjacency_of(graph)) {}

  LayerPlanPrice run() {
    price_.shortfall = -machine_.memory;
    stage_of_.resize(graph_.layers.size(), -1);
    for (size_t s = 0; s < plan_.stages.size(); ++s)
      for (const LayerId layer : plan_.stages[s].layers) stage_of_[layer] = static_cast<int>(s);
    collect_messages();
    for (size_t s = 0; s < plan_.stages.size(); ++s) price_.stages.push_back(stage_price(static_cast<int>(s)));
    if (is_boundary_rule()) price_levels();
    else
      for (const StagePrice& stage : price_.stages) price_.bottleneck = std::max(price_.bottleneck, stage.total);
    return std::move(price_);
  }

 private:
  bool is_boundary_rule() const {
    return convention_.cut == CutRule::kNone || convention_.cut == CutRule::kBoundaryTensors ||
           convention_.cut == CutRule::kBoundaryAntichain;
  }

  const LayerVariant* variant(const LayerStage& stage, size_t i) const {
    for (const LayerDegree& degree : graph_.layers[stage.layers[i]].degrees)
      if (degree.degree == stage.degree) {
        const int chosen = stage.variants.empty() ? 0 : stage.variants[i];
        return &degree.variants[static_cast<size_t>(chosen)];
      }
    return nullptr;
  }

  /// Bytes that a stage gets from others, and seconds in which these and the gradients of what it sends arrive.
  struct Messages {
    double in = 0, seconds = 0;
  };

  void collect_messages() {
    messages_.resize(plan_.stages.size());
    if (convention_.cut != CutRule::kStageMessages && convention_.copies != CopiesRule::kTwoVersions) return;
    std::map<std::pair<LayerId, int>, double> sent;  // by producer and reading stage
    for (const LayerEdge& edge : graph_.edges)
      if (stage_of_[edge.from] != stage_of_[edge.to]) {
        double& bytes = sent[{edge.from, stage_of_[edge.to]}];
        bytes = std::max(bytes, edge.bytes);
      }
    for (const auto& [ends, bytes] : sent) {
      const auto from = static_cast<size_t>(stage_of_[ends.first]), to = static_cast<size_t>(ends.second);
      const double seconds = bytes / bandwidth_between(plan_.stages[from], plan_.stages[to]);
      messages_[from].seconds += seconds;
      messages_[to].seconds += seconds;
      messages_[to].in += bytes;
    }
  }

  double bandwidth_between(const LayerStage& a, const LayerStage& b) const {
    size_t level = 0;
    for (size_t i = 0; is_by_level() && i < std::min(a.devices.size(), b.devices.size()); ++i)
      level = std::max(level, level_holding(a.devices[i], b.devices[i]));
    return machine_.levels[level].bandwidth;
  }
  double bandwidth_within(const LayerStage& stage) const {
    size_t level = 0;
    for (size_t i = 0; is_by_level() && i < stage.devices.size(); ++i)
      level = std::max(level, level_holding(stage.devices.front(), stage.devices[i]));
    return machine_.levels[level].bandwidth;
  }
  bool is_by_level() const { return convention_.level_of_devices && machine_.levels.size() > 1; }
  size_t level_holding(int a, int b) const {
    int group = 1;
    for (size_t level = 0; level < machine_.levels.size(); ++level) {
      group *= machine_.levels[level].count;
      if (a / group == b / group) return level;
    }
    return machine_.levels.size() - 1;
  }

  // Where a stage recomputes and the file did not measure that. A file that does not tell forward from backward: a
  // third is forward.
  double second_forward(const LayerStage& stage, const Layer& layer, const LayerVariant* run) const {
    if (!stage.recompute || stage.on_cpu) return 0;
    if (run != nullptr) return run->seconds / 3;
    return layer.forward_seconds > 0 ? layer.forward_seconds : layer.seconds() / 3;
  }

  double total(const StagePrice& price) const {
    switch (convention_.overlap) {
      case Overlap::kAdd:
        return price.compute + price.reduction + price.traffic;
      case Overlap::kMax:
        return std::max(price.compute + price.reduction, price.traffic);
      case Overlap::kMaxWithReduction:
        return std::max(price.compute + price.traffic, price.reduction);
    }
    return 0;
  }

  // All of a stage that does not depend on its place in a level.
  StagePrice stage_price(int index) {
    const LayerStage& stage = plan_.stages[static_cast<size_t>(index)];
    StagePrice price;
    double weights = 0, traffic = 0;
    for (size_t i = 0; i < stage.layers.size(); ++i) {
      const Layer& layer = graph_.layers[stage.layers[i]];
      const LayerVariant* run = variant(stage, i);
      price.compute += stage.on_cpu ? layer.cpu_seconds : run != nullptr ? run->seconds : layer.seconds();
      price.compute += second_forward(stage, layer, run);
      weights += run != nullptr ? run->weight_bytes : layer.weight_bytes;
      traffic += layer_traffic(index, i);
    }
    const double replicas = stage.replicas, bandwidth = bandwidth_within(stage);
    price.compute /= replicas;
    if (is_boundary_rule()) return price;  // the rest follows from the place in the row
    if (convention_.reduction_factor > 0 && stage.replicas > 1) {
      const auto every = static_cast<double>(std::max<int64_t>(convention_.reduction_every, 1));
      price.reduction = convention_.communication_scale * convention_.reduction_factor * (replicas - 1) * weights /
                        (replicas * every) / bandwidth;
    }
    if (convention_.cut == CutRule::kStageEdges) traffic *= convention_.communication_scale / replicas / bandwidth;
    if (convention_.cut == CutRule::kStageMessages)
      traffic = convention_.communication_scale / replicas * messages_[static_cast<size_t>(index)].seconds;
    price.traffic = stage.on_cpu ? 0 : traffic;
    price.total = total(price);
    price.memory = stage.on_cpu ? 0 : stage_memory(index);
    if (!stage.on_cpu) price_.shortfall = std::max(price_.shortfall, price.memory - machine_.memory);
    return price;
  }

  static double sync_bytes(const std::vector<LayerSync>& syncs, LayerId neighbour) {
    for (const LayerSync& sync : syncs)
      if (sync.neighbour == neighbour) return sync.bytes;
    return 0;
  }

  // kStageEdges: bytes. kStageTransfers: seconds; a tensor that enters is charged at its first reader in the stage.
  double layer_traffic(int index, size_t i) {
    const LayerStage& stage = plan_.stages[static_cast<size_t>(index)];
    const LayerId id = stage.layers[i];
    double traffic = 0;
    if (convention_.cut == CutRule::kStageEdges) {
      if (edges_of_.empty()) index_edges();
      const LayerVariant* run = variant(stage, i);
      for (const LayerEdge* edge : edges_of_[id]) {
        const LayerId other = edge->from == id ? edge->to : edge->from;
        if (stage_of_[other] == index) continue;
        double bytes = edge->bytes;
        if (run != nullptr) bytes += sync_bytes(edge->from == id ? run->sync_to : run->sync_from, other);
        traffic += 2 * bytes;
      }
    } else if (convention_.cut == CutRule::kStageTransfers) {
      const auto outside = [&](LayerId other) { return stage_of_[other] != index; };
      if (std::ranges::any_of(adjacency_.successors[id], outside)) traffic += graph_.layers[id].transfer_seconds;
      for (const LayerId from : adjacency_.predecessors[id])
        if (outside(from) && first_reader(from, index) == id) traffic += graph_.layers[from].transfer_seconds;
    }
    return traffic;
  }

  LayerId first_reader(LayerId producer, int stage) const {
    for (const LayerId reader : adjacency_.successors[producer])
      if (stage_of_[reader] == stage) return reader;
    return {};
  }

  void index_edges() {
    edges_of_.resize(graph_.layers.size());
    for (const LayerEdge& edge : graph_.edges) {
      edges_of_[edge.from].push_back(&edge);
      edges_of_[edge.to].push_back(&edge);
    }
  }

  double two_versions(int index) const {
    const LayerStage& stage = plan_.stages[static_cast<size_t>(index)];
    const double enters = messages_[static_cast<size_t>(index)].in;
    double memory = 0, kept = 0;
    bool is_smaller = false;
    for (size_t i = 0; i < stage.layers.size(); ++i) {
      const LayerVariant* run = variant(stage, i);
      const Layer& layer = graph_.layers[stage.layers[i]];
      memory += run != nullptr ? run->memory_fixed : 2 * layer.weight_bytes;
      kept += run != nullptr ? run->memory_per_item : layer.output_bytes;
      is_smaller = is_smaller || (!stage.variants.empty() && stage.variants[i] > 0);
    }
    if (stage.recompute) {
      memory += kept;
      kept = enters;
    } else if (is_smaller) {
      kept = std::max(kept, enters);
    }
    return memory + static_cast<double>(plan_.stages.size()) * kept;
  }

  double stage_memory(int index) const {
    if (convention_.copies == CopiesRule::kTwoVersions) return two_versions(index);
    const LayerStage& stage = plan_.stages[static_cast<size_t>(index)];
    double memory = 0;
    int pipelined = 0;
    for (size_t s = static_cast<size_t>(index); s < plan_.stages.size(); ++s) pipelined += plan_.stages[s].replicas;
    double items = std::ceil(static_cast<double>(pipelined) / stage.replicas);
    const bool is_shared = convention_.copies == CopiesRule::kStages;
    if (is_shared) items = static_cast<double>(plan_.stages.size() - static_cast<size_t>(index)) / stage.replicas;
    for (size_t i = 0; i < stage.layers.size(); ++i) {
      if (convention_.copies == CopiesRule::kOnce) memory += graph_.layers[stage.layers[i]].memory_bytes;
      const LayerVariant* run = variant(stage, i);
      if ((is_shared || convention_.copies == CopiesRule::kVariants) && run != nullptr)
        memory += run->memory_per_item * items + run->memory_fixed;
    }
    return memory;
  }

  // PipeDream: the linear pipeline and, around it, rows of groups.
  void price_levels() {
    boundaries_.assign(plan_.stages.size() + 1, 0);
    IdSet<LayerId> before(graph_.layers.size());
    for (size_t s = 0; s + 1 < plan_.stages.size(); ++s) {
      for (const LayerId layer : plan_.stages[s].layers) before.insert(layer);
      if (convention_.cut != CutRule::kNone)
        boundaries_[s + 1] = boundary_bytes(graph_, adjacency_, before, convention_.cut);
    }
    std::vector<Unit> units;
    std::vector<double> seconds;
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      units.push_back({static_cast<int>(s), 1, plan_.stages[s].replicas});
      double work = 0;
      for (const LayerId layer : plan_.stages[s].layers) work += graph_.layers[layer].seconds();
      seconds.push_back(work);
    }
    double links = 1;
    for (size_t level = 0; level < machine_.levels.size(); ++level) {
      const std::vector<Unit> parents = units_of_level(static_cast<int>(level) + 1);
      std::vector<double> outer;
      for (const Unit& parent : parents) {
        std::vector<size_t> row;
        for (size_t u = 0; u < units.size(); ++u)
          if (units[u].first >= parent.first && units[u].first < parent.first + parent.count) row.push_back(u);
        outer.push_back(row_time(level, links, units, seconds, row));
      }
      links = convention_.links_of_all_levels ? links * machine_.levels[level].count : machine_.levels[level].count;
      units = parents;
      seconds = outer;
    }
    price_.bottleneck = *std::ranges::max_element(seconds);
  }

  // Above the last level there is one unit.
  std::vector<Unit> units_of_level(int level) const {
    std::vector<Unit> units;
    for (const LayerGroup& group : plan_.groups)
      if (group.level == level) units.push_back({group.first, group.count, group.replicas});
    if (units.empty()) units.push_back({0, static_cast<int>(plan_.stages.size()), 1});
    return units;
  }

  double row_time(size_t level, double links, const std::vector<Unit>& units, const std::vector<double>& seconds,
                  const std::vector<size_t>& row) {
    double slowest = 0;
    int later = 0;
    for (const size_t u : row) later += units[u].replicas;
    for (size_t position = 0; position < row.size(); ++position) {
      const Unit& unit = units[row[position]];
      later -= unit.replicas;
      const double d = unit.replicas, bandwidth = machine_.levels[level].bandwidth;
      const double wide = position == 0 || convention_.parallel_links_everywhere ? links : 1;
      StagePrice price;
      price.compute = seconds[row[position]] / d;
      price.reduction =
          convention_.reduction_factor * (d - 1) * sum(unit, &Layer::weight_bytes) / (d * bandwidth * wide) / d;
      const bool first = position == 0, last = position + 1 == row.size();
      double bytes = 0;
      if (!first) {
        bytes = boundaries_[static_cast<size_t>(unit.first)];
        if (!last || convention_.group_end_pays_twice)
          bytes = std::max(bytes, boundaries_[static_cast<size_t>(unit.first + unit.count)]);
      }
      price.traffic = 2 * bytes / (bandwidth * d);
      price.total = std::max(price.compute + price.reduction, price.traffic);
      price.memory = unit_memory(unit, later);
      price_.shortfall = std::max(price_.shortfall, price.memory - machine_.memory);
      if (level == 0) price_.stages[row[position]] = price;
      slowest = std::max(slowest, price.total);
    }
    return slowest;
  }

  double unit_memory(const Unit& unit, int later) const {
    if (convention_.copies != CopiesRule::kAfter && convention_.copies != CopiesRule::kFrom) return 0;
    const int devices = convention_.copies == CopiesRule::kFrom ? later + unit.replicas : later;
    const double copies = std::ceil(static_cast<double>(devices) / unit.replicas);
    return copies * (sum(unit, &Layer::output_bytes) + sum(unit, &Layer::weight_bytes));
  }

  double sum(const Unit& unit, double Layer::*field) const {
    double total = 0;
    for (int s = unit.first; s < unit.first + unit.count; ++s)
      for (const LayerId layer : plan_.stages[static_cast<size_t>(s)].layers) total += graph_.layers[layer].*field;
    return total;
  }

  const LayerGraph& graph_;
  const LayerPlan& plan_;
  const LayerMachine& machine_;
  const LayerConvention& convention_;
  const LayerAdjacency adjacency_;
  IdMap<LayerId, int> stage_of_;
  IdMap<LayerId, std::vector<const LayerEdge*>> edges_of_;
  std::vector<Messages> messages_;
  std::vector<double> boundaries_;  // before each stage
  LayerPlanPrice price_;
};

LayerPlanPrice price_pools(const LayerGraph& graph, const LayerPlan& plan, const LayerMachine& machine,
                           LayerConvention convention) {
  LayerPlan pooled = plan;
  pooled.stages.clear();
  std::vector<size_t> pool_of;
  for (const LayerStage& stage : plan.stages) {
    const auto pool = std::ranges::find(pooled.stages, stage.devices, &LayerStage::devices);
    pool_of.push_back(static_cast<size_t>(pool - pooled.stages.begin()));
    if (pool == pooled.stages.end()) {
      pooled.stages.push_back(stage);
      continue;
    }
    pool->layers.insert(pool->layers.end(), stage.layers.begin(), stage.layers.end());
    pool->variants.insert(pool->variants.end(), stage.variants.begin(), stage.variants.end());
  }
  convention.pools_devices = false;
  LayerPlanPrice price = LayerPricer(graph, pooled, machine, convention).run();
  const std::vector<StagePrice> pools = std::move(price.stages);
  price.stages.clear();
  for (const size_t pool : pool_of) price.stages.push_back(pools[pool]);
  return price;
}

}  // namespace

LayerPlanPrice price_layer_plan(const LayerGraph& graph, const LayerPlan& plan, const LayerMachine& machine,
                                const LayerConvention& convention) {
  GP_CHECK(!machine.levels.empty() && !plan.stages.empty());
  if (convention.pools_devices) return price_pools(graph, plan, machine, convention);
  return LayerPricer(graph, plan, machine, convention).run();
}

double boundary_bytes(const LayerGraph& graph, const LayerAdjacency& adjacency, const IdSet<LayerId>& before,
                      CutRule rule) {
  double bytes = 0;
  IdSet<LayerId> counted(graph.layers.size());
  const auto count = [&](LayerId id) {
    if (counted.insert(id)) bytes += graph.layers[id].output_bytes;
  };
  for (const LayerId id : adjacency.order) {
    if (!before.contains(id)) continue;
    const auto& readers = adjacency.successors[id];
    const auto inside = [&](LayerId reader) { return before.contains(reader); };
    if (rule == CutRule::kBoundaryTensors) {
      if (!std::ranges::all_of(readers, inside)) count(id);
      continue;
    }
    if (std::ranges::any_of(readers, inside)) continue;  // not the last of its kind before the boundary
    count(id);
    IdSet<LayerId> ancestors(graph.layers.size());
    std::vector<LayerId> found{id};
    ancestors.insert(id);
    for (size_t i = 0; i < found.size(); ++i)
      for (const LayerId from : adjacency.predecessors[found[i]])
        if (ancestors.insert(from)) found.push_back(from);
    for (const LayerId ancestor : found)
      for (const LayerId reader : adjacency.successors[ancestor])
        if (ancestor != id && !ancestors.contains(reader)) count(ancestor);
  }
  return bytes;
}

}  // namespace graphpipe::partitioner
