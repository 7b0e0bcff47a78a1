#pragma once
// What the searches of other projects' planners are asked and answer: the nodes of a plan graph at the prices of one
// unit of work, and an assignment of them, with the number that the original puts on it. cost_models/plan_by_units.h
// asks them for models and profiles.

#include <string>
#include <string_view>
#include <vector>

#include "ir/assignment.h"
#include "partitioner/cost_models/cost_model.h"
#include "partitioner/cost_models/unit_prices.h"
#include "partitioner/planner.h"

namespace graphpipe::partitioner {

/// A cluster by its levels, innermost first: `count` units of the level below (devices at the first) with `bandwidth`
/// bytes per second each.
struct MachineLevels {
  struct Level {
    int count = 1;
    double bandwidth = 1e9;
  };
  std::vector<Level> levels;
  /// CPUs are numbered after the accelerators.
  int cpus = 0;
  /// Bytes of one accelerator.
  double memory = kInfinity;
  /// Accelerators: the product of the counts.
  int devices() const {
    int product = 1;
    for (const Level& level : levels) product *= level.count;
    return product;
  }
};

struct UnitRequest : OriginalOptions, SearchTime {
  /// Needs: outlives the call; at least one node.
  const UnitPrices* prices = nullptr;
  /// At least one level. Planners that know one bandwidth take the first level's.
  MachineLevels machine;
  bool has(const Quirk& quirk) const { return compat.find(quirk.name) != compat.end(); }
  bool replication = true;
  /// Of one step; planners that choose it themselves ignore it.
  int64_t micro_batches = 1;
  /// Devices up to the end of each machine: {8, 16} are two of eight (DAPPLE). Empty: one machine.
  std::vector<int> machines;
  /// Bytes for tables; the search stops there too, with its best plan and a bound.
  double memory_budget = 800e6;
  /// Where nothing fits, the error says how much memory is missing; to find out takes some searches more.
  bool measure_shortfall = true;
  /// Pairs of sets that one search may look at.
  int64_t max_pairs = 2'500'000'000;
};

/// PipeDream on nested levels: stages [first, first + count) form one stage of an outer level of the machine, copied
/// `replicas` times. Devices of a stage are those of all copies, the innermost first.
struct StageGroup {
  /// 1 is the first level outside of the stages' own.
  int level = 1;
  int first = 0, count = 1;
  int replicas = 1;
  bool operator==(const StageGroup&) const = default;
};

struct UnitAnswer : SearchRecord, OwnObjective {
  /// Of the nodes of the prices' graph. Stages in an order in which every edge leads to the same or a later one, except
  /// where the terms allow what is not convex; micro-batches are one unit.
  ir::Assignment plan;
  /// Outer levels, innermost first, each level covering all stages in order; empty: one level.
  std::vector<StageGroup> groups;
  /// What the objective is made of: enough to compute it again from a plan.
  CostModel model;
};

/// Runs the search of a planner and checks its answer with check_unit_plan. Needs: the planner has a search. Errors:
/// those of the search.
Result<UnitAnswer> search_unit(const PlannerEntry& planner, const UnitRequest& request);

/// Appends a stage of these layers. `variants`: of each layer its place among the alternatives of the degree; empty:
/// nodes as they stand.
void add_stage(const UnitPrices& prices, std::span<const uint32_t> layers, ir::StageChoice choice,
               std::span<const int> variants, ir::Assignment& plan);
/// Replicas on devices with numbers from `first` on, each of `degree` devices.
ir::StageChoice on_devices(int first, int replicas, int degree = 1);

/// The plan of a unit graph for the graph that it was made of: stages recompute where a node in them does.
ir::Assignment with_stages_recomputing(const ir::PlanGraph& unit, ir::Assignment plan);

/// The layers of each stage, ascending.
std::vector<std::vector<uint32_t>> layers_of_stages(const UnitPrices& prices, const ir::Assignment& plan);
/// The alternative that a plan takes for a layer, null where the node has none of its stage's degree.
const ir::NodeAlternative* chosen_alternative(const UnitPrices& prices, const ir::Assignment& plan, uint32_t layer);
/// Copies of a stage that groups around it make.
int copies_around(std::span<const StageGroup> groups, size_t stage);

}  // namespace graphpipe::partitioner
