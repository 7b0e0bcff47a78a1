#pragma once
// What the searches of other projects' planners are asked and answer, each in its own terms, on the layers that
// cost_models/layer_view.h makes of a plan graph. cost_models/plan_by_layers.h turns answers into assignments.

#include <string>
#include <string_view>
#include <vector>

#include "partitioner/cost_models/layer_convention.h"
#include "partitioner/cost_models/layer_plan.h"
#include "partitioner/planner.h"

namespace graphpipe::partitioner {

struct LayerPlanRequest : OriginalOptions {
  /// Needs: outlives the call; acyclic, at least one layer.
  const LayerGraph* graph = nullptr;
  /// At least one level. Planners that know one bandwidth take the first level's.
  LayerMachine machine;
  bool has(std::string_view quirk) const { return compat.find(quirk) != compat.end(); }
  bool replication = true;
  /// Of one step; planners that choose it themselves ignore it.
  int64_t micro_batches = 1;
  /// Devices up to the end of each machine: {8, 16} are two of eight (DAPPLE). Empty: one machine.
  std::vector<int> machines;
  /// Seconds, and bytes for tables; the search stops at either with its best plan and a bound.
  double time_limit = kInfinity;
  double memory_budget = 800e6;
  /// Where nothing fits, the error says how much memory is missing; to find out takes some searches more.
  bool measure_shortfall = true;
  /// Pairs of sets that one search may look at.
  int64_t max_pairs = 2'500'000'000;
  /// Set by another thread to end the search; may be null.
  const std::atomic<bool>* cancel = nullptr;
};

/// How a planner puts one number on a plan.
enum class LayerScore : uint8_t {
  kBottleneck,  // the largest stage time (price_layer_plan)
  kDapple,      // speed-up of one synchronous iteration (dapple/planner.h)
  kBlocks,      // the heaviest block of rounded microseconds (torchgpipe/planner.h)
  kIteration,   // sum of stage times and (micro-batches - 1) times the largest
  kThroughput,  // units of profiled work per second: 1 / the largest stage time
};

/// What the objective is made of: enough to compute it again from a plan.
struct LayerTerms {
  LayerScore score = LayerScore::kBottleneck;
  LayerConvention convention;
  /// kDapple: the copies of the pipeline that a stage's devices belong to, and how many times the bytes of a cut count
  /// in the slowest stage.
  int copies = 1;
  double traffic_factor = 2;
};

struct LayerPlanAnswer {
  LayerPlan plan;
  LayerTerms terms;
  /// In `unit`, and a proven bound that no plan of the planner's search space beats.
  double objective = 0, bound = 0;
  /// "ms", "s", "us", "speed-up", "1/s".
  std::string_view unit = "ms";
  bool larger_is_better = false;
  /// Relative distance from the bound, zero where the plan is proven best.
  double gap() const;
  /// False where a limit ended the search; `stopped` says which, in words.
  bool complete = true;
  std::string stopped;
  /// Sets of layers visited, and pairs of them tried as stages.
  int64_t states = 0, pairs = 0;
  double search_seconds = 0;
};

/// Runs the search of a planner and checks its answer with check_layer_plan. Needs: the planner has a search. Errors:
/// those of the search.
Result<LayerPlanAnswer> plan_layers(const PlannerEntry& planner, const LayerPlanRequest& request);

}  // namespace graphpipe::partitioner
