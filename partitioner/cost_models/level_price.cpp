#include "partitioner/cost_models/level_price.h"

#include <algorithm>

#include "partitioner/cost_models/boundary_bytes.h"

namespace graphpipe::partitioner {
namespace {

/// A run of stages: one stage at the innermost level, one group at an outer one.
struct Unit {
  int first = 0, count = 1, replicas = 1;
};

class LevelPricer {
 public:
  LevelPricer(const UnitPrices& prices, const ir::Assignment& plan, const MachineLevels& machine,
              const CostModel& model, std::span<const StageGroup> groups)
      : prices_(prices),
        machine_(machine),
        model_(model),
        groups_(groups),
        layers_(layers_of_stages(prices, plan)),
        boundaries_(layers_.size() + 1, 0) {
    const Dag dag(prices.size(), prices.edges);
    const BoundaryBytes boundary(prices, dag, model.traffic);
    BitWords before(words_for(prices.size()), 0);
    for (size_t s = 0; s < layers_.size(); ++s) {
      const size_t devices = plan.choice[ir::StageId(s)].devices.size();
      stages_.push_back({static_cast<int>(s), 1, static_cast<int>(devices) / copies_around(groups, s)});
      for (const uint32_t layer : layers_[s]) set_bit(before.data(), layer);
      if (s + 1 < layers_.size()) boundaries_[s + 1] = boundary.of(before);
    }
  }

  PlanPrice run() {
    price_.shortfall = -machine_.memory;
    price_.stages.resize(layers_.size());
    std::vector<Unit> units = stages_;
    std::vector<double> seconds;
    for (const Unit& stage : stages_) seconds.push_back(sum(stage, prices_.seconds));
    double links = 1;
    for (size_t level = 0; level < machine_.levels.size(); ++level) {
      const std::vector<Unit> parents = units_of_level(static_cast<int>(level) + 1);
      std::vector<double> outer;
      for (const Unit& parent : parents) {
        std::vector<size_t> chain;
        for (size_t u = 0; u < units.size(); ++u)
          if (units[u].first >= parent.first && units[u].first < parent.first + parent.count) chain.push_back(u);
        outer.push_back(chain_time(level, links, units, seconds, chain));
      }
      links = model_.links_of_all_levels ? links * machine_.levels[level].count : machine_.levels[level].count;
      units = parents;
      seconds = outer;
    }
    price_.bottleneck = *std::ranges::max_element(seconds);
    return std::move(price_);
  }

 private:
  // Above the last level there is one unit.
  std::vector<Unit> units_of_level(int level) const {
    std::vector<Unit> units;
    for (const StageGroup& group : groups_)
      if (group.level == level) units.push_back({group.first, group.count, group.replicas});
    if (units.empty()) units.push_back({0, static_cast<int>(layers_.size()), 1});
    return units;
  }

  double chain_time(size_t level, double links, const std::vector<Unit>& units, const std::vector<double>& seconds,
                    const std::vector<size_t>& chain) {
    double slowest = 0;
    int later = 0;
    for (const size_t u : chain) later += units[u].replicas;
    for (size_t position = 0; position < chain.size(); ++position) {
      const Unit& unit = units[chain[position]];
      later -= unit.replicas;
      const double d = unit.replicas, bandwidth = machine_.levels[level].bandwidth;
      const double wide = position == 0 || model_.parallel_links_everywhere ? links : 1;
      StagePrice price;
      price.compute = seconds[chain[position]] / d;
      price.reduction =
          model_.reduction_factor * (d - 1) * sum(unit, prices_.weight_bytes) / (d * bandwidth * wide) / d;
      const bool first = position == 0, last = position + 1 == chain.size();
      double bytes = 0;
      if (!first) {
        bytes = boundaries_[static_cast<size_t>(unit.first)];
        if (!last || model_.group_end_pays_twice)
          bytes = std::max(bytes, boundaries_[static_cast<size_t>(unit.first + unit.count)]);
      }
      price.traffic = 2 * bytes / (bandwidth * d);
      price.total = std::max(price.compute + price.reduction, price.traffic);
      price.memory = unit_memory(unit, later);
      price_.shortfall = std::max(price_.shortfall, price.memory - machine_.memory);
      if (level == 0) price_.stages[chain[position]] = price;
      slowest = std::max(slowest, price.total);
    }
    return slowest;
  }

  double unit_memory(const Unit& unit, int later) const {
    if (model_.memory != MemoryRule::kCopiesBehind && model_.memory != MemoryRule::kCopiesFrom) return 0;
    return copies_held(model_.memory, later, unit.replicas) *
           (sum(unit, prices_.output_bytes) + sum(unit, prices_.weight_bytes));
  }

  double sum(const Unit& unit, const std::vector<double>& column) const {
    double total = 0;
    for (int s = unit.first; s < unit.first + unit.count; ++s)
      for (const uint32_t layer : layers_[static_cast<size_t>(s)]) total += column[layer];
    return total;
  }

  const UnitPrices& prices_;
  const MachineLevels& machine_;
  const CostModel& model_;
  const std::span<const StageGroup> groups_;
  const std::vector<std::vector<uint32_t>> layers_;
  std::vector<Unit> stages_;
  std::vector<double> boundaries_;  // before each stage
  PlanPrice price_;
};

}  // namespace

PlanPrice price_levels(const UnitPrices& prices, const ir::Assignment& plan, const MachineLevels& machine,
                       const CostModel& model, std::span<const StageGroup> groups) {
  return LevelPricer(prices, plan, machine, model, groups).run();
}

}  // namespace graphpipe::partitioner
