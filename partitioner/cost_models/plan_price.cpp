#include "partitioner/cost_models/plan_price.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "partitioner/cost_models/level_price.h"

namespace graphpipe::partitioner {

namespace {

/// Prices a plan in terms in which the cost of a stage does not depend on its position.
class StagePricer {
 public:
  StagePricer(const UnitPrices& prices, const ir::Assignment& plan, const MachineLevels& machine,
              const CostModel& model, std::span<const StageGroup> groups)
      : prices_(prices),
        plan_(plan),
        machine_(machine),
        model_(model),
        dag_(prices.size(), prices.edges),
        layers_(layers_of_stages(prices, plan)) {
    for (uint32_t layer = 0; layer < prices.size(); ++layer)
      stage_of_.push_back(plan.stage_of[prices.nodes[layer]].index());
    for (size_t s = 0; s < layers_.size(); ++s)
      replicas_.push_back(static_cast<int>(choice(s).devices.size()) / copies_around(groups, s));
  }

  PlanPrice run() {
    price_.shortfall = -machine_.memory;
    collect_messages();
    for (size_t s = 0; s < layers_.size(); ++s) price_.stages.push_back(stage_price(s));
    for (const StagePrice& stage : price_.stages) price_.bottleneck = std::max(price_.bottleneck, stage.total);
    return std::move(price_);
  }

 private:
  const ir::StageChoice& choice(size_t stage) const { return plan_.choice[ir::StageId(stage)]; }
  bool is_on_cpu(size_t stage) const {
    return static_cast<int>(choice(stage).devices.front().index()) >= machine_.devices();
  }
  const ir::NodeAlternative* chosen(uint32_t layer) const { return chosen_alternative(prices_, plan_, layer); }

  /// Bytes that a stage gets from others, and the seconds in which these and the gradients of what it sends arrive.
  struct Messages {
    double in = 0, seconds = 0;
  };

  void collect_messages() {
    messages_.resize(layers_.size());
    if (model_.traffic != TrafficRule::kStageMessages && model_.memory != MemoryRule::kTwoVersions) return;
    std::map<std::pair<uint32_t, size_t>, double> sent;  // by producer and reading stage
    for (size_t edge = 0; edge < prices_.edges.size(); ++edge) {
      const auto [from, to] = prices_.edges[edge];
      if (stage_of_[from] == stage_of_[to]) continue;
      double& bytes = sent[{from, stage_of_[to]}];
      bytes = std::max(bytes, prices_.edge_bytes[edge]);
    }
    for (const auto& [ends, bytes] : sent) {
      const size_t from = stage_of_[ends.first], to = ends.second;
      const double seconds = bytes / bandwidth_between(choice(from), choice(to));
      messages_[from].seconds += seconds;
      messages_[to].seconds += seconds;
      messages_[to].in += bytes;
    }
  }

  double bandwidth_between(const ir::StageChoice& a, const ir::StageChoice& b) const {
    size_t level = 0;
    for (size_t i = 0; is_by_level() && i < std::min(a.devices.size(), b.devices.size()); ++i)
      level = std::max(level, level_holding(a.devices[i], b.devices[i]));
    return machine_.levels[level].bandwidth;
  }
  double bandwidth_within(const ir::StageChoice& stage) const {
    size_t level = 0;
    for (size_t i = 0; is_by_level() && i < stage.devices.size(); ++i)
      level = std::max(level, level_holding(stage.devices.front(), stage.devices[i]));
    return machine_.levels[level].bandwidth;
  }
  bool is_by_level() const { return model_.level_of_devices && machine_.levels.size() > 1; }
  size_t level_holding(ir::DeviceId a, ir::DeviceId b) const {
    size_t group = 1;
    for (size_t level = 0; level < machine_.levels.size(); ++level) {
      group *= static_cast<size_t>(machine_.levels[level].count);
      if (a.index() / group == b.index() / group) return level;
    }
    return machine_.levels.size() - 1;
  }

  // The forward that a recomputing stage runs again, unless the file has measured that. Where a file does not tell
  // forward from backward, a third of the time is forward.
  double second_forward(size_t stage, uint32_t layer, const ir::NodeAlternative* run) const {
    if (!choice(stage).recompute || is_on_cpu(stage)) return 0;
    if (run != nullptr) return run->seconds.total(1) / 3;
    return prices_.forward[layer] > 0 ? prices_.forward[layer] : prices_.seconds[layer] / 3;
  }

  double total(const StagePrice& price) const {
    switch (model_.overlap) {
      case Overlap::kAdd:
        return price.compute + price.reduction + price.traffic;
      case Overlap::kMax:
        return std::max(price.compute + price.reduction, price.traffic);
      case Overlap::kMaxWithReduction:
        return std::max(price.compute + price.traffic, price.reduction);
    }
    return 0;
  }

  StagePrice stage_price(size_t stage) {
    StagePrice price;
    double weights = 0, traffic = 0;
    const bool on_cpu = is_on_cpu(stage);
    for (const uint32_t layer : layers_[stage]) {
      const ir::NodeAlternative* run = chosen(layer);
      price.compute += on_cpu           ? prices_.cpu_seconds[layer]
                       : run != nullptr ? run->seconds.total(1)
                                        : prices_.seconds[layer];
      price.compute += second_forward(stage, layer, run);
      weights += run != nullptr ? run->weight_bytes : prices_.weight_bytes[layer];
      traffic += node_traffic(stage, layer, run);
    }
    const double replicas = replicas_[stage], bandwidth = bandwidth_within(choice(stage));
    price.compute /= replicas;
    if (model_.reduction_factor > 0 && replicas > 1) {
      const auto every = static_cast<double>(std::max<int64_t>(model_.reduction_every, 1));
      price.reduction = model_.communication_scale * model_.reduction_factor * (replicas - 1) * weights /
                        (replicas * every) / bandwidth;
    }
    if (model_.traffic == TrafficRule::kStageEdges) traffic *= model_.communication_scale / replicas / bandwidth;
    if (model_.traffic == TrafficRule::kStageMessages)
      traffic = model_.communication_scale / replicas * messages_[stage].seconds;
    price.traffic = on_cpu ? 0 : traffic;
    price.total = total(price);
    price.memory = on_cpu ? 0 : stage_memory(stage);
    if (!on_cpu) price_.shortfall = std::max(price_.shortfall, price.memory - machine_.memory);
    return price;
  }

  double collective_bytes(const std::vector<ir::NodeAlternative::Boundary>& boundaries, uint32_t neighbour) const {
    for (const auto& boundary : boundaries)
      if (boundary.neighbour == prices_.nodes[neighbour]) return boundary.bytes;
    return 0;
  }

  // kStageEdges: bytes. kStageTransfers: seconds; a tensor that enters is charged at its first reader in the stage.
  double node_traffic(size_t stage, uint32_t layer, const ir::NodeAlternative* run) {
    double traffic = 0;
    if (model_.traffic == TrafficRule::kStageEdges) {
      if (edges_of_.empty()) index_edges();
      for (const size_t edge : edges_of_[layer]) {
        const auto [from, to] = prices_.edges[edge];
        const uint32_t other = from == layer ? to : from;
        if (stage_of_[other] == stage) continue;
        double bytes = prices_.edge_bytes[edge];
        if (run != nullptr) bytes += collective_bytes(from == layer ? run->to : run->from, other);
        traffic += 2 * bytes;
      }
    } else if (model_.traffic == TrafficRule::kStageTransfers) {
      const auto outside = [&](uint32_t other) { return stage_of_[other] != stage; };
      if (std::ranges::any_of(dag_.successors(layer), outside)) traffic += prices_.transfer_seconds[layer];
      for (const uint32_t from : dag_.predecessors(layer))
        if (outside(from) && first_reader(from, stage) == layer) traffic += prices_.transfer_seconds[from];
    }
    return traffic;
  }

  uint32_t first_reader(uint32_t producer, size_t stage) const {
    return *std::ranges::find(dag_.successors(producer), stage, [&](uint32_t reader) { return stage_of_[reader]; });
  }

  void index_edges() {
    edges_of_.resize(prices_.size());
    for (size_t edge = 0; edge < prices_.edges.size(); ++edge) {
      edges_of_[prices_.edges[edge].first].push_back(edge);
      edges_of_[prices_.edges[edge].second].push_back(edge);
    }
  }

  double two_versions(size_t stage) const {
    const double enters = messages_[stage].in;
    double memory = 0, kept = 0;
    bool is_smaller = false;
    for (const uint32_t layer : layers_[stage]) {
      const ir::NodeAlternative* run = chosen(layer);
      memory += run != nullptr ? run->fixed_bytes : 2 * prices_.weight_bytes[layer];
      kept += run != nullptr ? run->kept_bytes : prices_.output_bytes[layer];
      const auto own = alternatives_of(prices_.node(layer), choice(stage).degree);
      is_smaller = is_smaller || (run != nullptr && run != &own.front());
    }
    if (choice(stage).recompute) {
      memory += kept;
      kept = enters;
    } else if (is_smaller) {
      kept = std::max(kept, enters);
    }
    return memory + static_cast<double>(layers_.size()) * kept;
  }

  double stage_memory(size_t stage) const {
    if (model_.memory == MemoryRule::kTwoVersions) return two_versions(stage);
    double memory = 0;
    int pipelined = 0;
    for (size_t s = stage; s < layers_.size(); ++s) pipelined += replicas_[s];
    double items = std::ceil(static_cast<double>(pipelined) / replicas_[stage]);
    const bool is_shared = model_.memory == MemoryRule::kSharedVariants;
    if (is_shared) items = static_cast<double>(layers_.size() - stage) / replicas_[stage];
    for (const uint32_t layer : layers_[stage]) {
      if (model_.memory == MemoryRule::kMeasured) memory += prices_.memory_bytes[layer];
      const ir::NodeAlternative* run = chosen(layer);
      if ((is_shared || model_.memory == MemoryRule::kVariants) && run != nullptr)
        memory += run->kept_bytes * items + run->fixed_bytes;
    }
    return memory;
  }

  const UnitPrices& prices_;
  const ir::Assignment& plan_;
  const MachineLevels& machine_;
  const CostModel& model_;
  const Dag dag_;
  const std::vector<std::vector<uint32_t>> layers_;
  std::vector<size_t> stage_of_;
  std::vector<int> replicas_;
  std::vector<std::vector<size_t>> edges_of_;
  std::vector<Messages> messages_;
  PlanPrice price_;
};

/// Prices stages with the same devices as one stage.
PlanPrice price_pools(const UnitPrices& prices, const ir::Assignment& plan, const MachineLevels& machine,
                      CostModel model) {
  ir::Assignment pooled{.stage_of = plan.stage_of, .choice = {}, .alternative = plan.alternative};
  std::vector<ir::StageId> pool_of;
  for (const ir::StageChoice& choice : plan.choice) {
    const auto pool = std::ranges::find(pooled.choice, choice.devices, &ir::StageChoice::devices);
    pool_of.emplace_back(static_cast<size_t>(pool - pooled.choice.begin()));
    if (pool == pooled.choice.end()) pooled.choice.push_back(choice);
  }
  for (ir::StageId& stage : pooled.stage_of) stage = pool_of[stage.index()];
  model.pools_devices = false;
  PlanPrice price = StagePricer(prices, pooled, machine, model, {}).run();
  const std::vector<StagePrice> pools = std::move(price.stages);
  price.stages.clear();
  for (const ir::StageId pool : pool_of) price.stages.push_back(pools[pool.index()]);
  return price;
}

}  // namespace

PlanPrice price_plan(const UnitPrices& prices, const ir::Assignment& plan, const MachineLevels& machine,
                     const CostModel& model, std::span<const StageGroup> groups) {
  GP_CHECK(!machine.levels.empty() && !plan.choice.empty());
  if (is_priced_by_level(model.traffic)) return price_levels(prices, plan, machine, model, groups);
  if (model.pools_devices) return price_pools(prices, plan, machine, model);
  return StagePricer(prices, plan, machine, model, groups).run();
}

}  // namespace graphpipe::partitioner
