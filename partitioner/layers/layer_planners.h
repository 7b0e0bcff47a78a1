#pragma once
// The planners that work on layer graphs: those of other projects, each in its own terms. An explicit list; one row
// each. Imported profiles are planned through it directly, ONNX models through a conversion (planners.cpp).

#include <atomic>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cost/layer_cost.h"
#include "ir/layer_plan.h"
#include "support/result.h"
#include "support/units.h"

namespace graphpipe::partitioner {

/// A deviation of an original program from its own paper or from sense, by the name that the specification gives it.
struct Quirk {
  std::string_view name;
  std::string_view description;
  /// Whether `--compat all` switches it on.
  bool in_all = true;
};

struct LayerPlanRequest {
  /// Needs: outlives the call and passes verify_layer_graph.
  const ir::LayerGraph* graph = nullptr;
  /// At least one level. Planners that know one bandwidth take the first level's.
  cost::LayerMachine machine;
  /// Names of quirks to reproduce; each planner knows its own.
  std::set<std::string, std::less<>> compat;
  bool has(std::string_view quirk) const { return compat.find(quirk) != compat.end(); }
  bool replication = true;
  /// A plan may leave devices idle where the original uses all.
  bool use_fewer = false;
  bool charge_traffic = true;
  /// max-throughput: devices may hold several runs of layers.
  bool non_contiguous = false;
  /// Variants that recompute may be chosen.
  bool recompute = true;
  /// Of one step; planners that choose it themselves ignore it.
  int64_t micro_batches = 1;
  /// Samples of a step, of a micro-batch, and of the unit of work that was profiled.
  int64_t batch = 1024, micro_batch = 64, profile_batch = 64;
  /// Devices up to the end of each machine: {8, 16} are two of eight (DAPPLE). Empty: one machine.
  std::vector<int> machines;
  int max_degree = std::numeric_limits<int>::max();
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
  cost::LayerConvention convention;
  /// kDapple: the copies of the pipeline that a stage's devices belong to, and how many times the bytes of a cut count
  /// in the slowest stage.
  int copies = 1;
  double traffic_factor = 2;
};

struct LayerPlanAnswer {
  ir::LayerPlan plan;
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

struct LayerPlannerEntry {
  std::string_view name;
  std::string_view description;
  std::span<const Quirk> quirks;
  /// Errors: kNoFeasiblePlan with the smallest shortfall; kUsage for a request that makes no sense to this planner;
  /// kInterrupted where the search ended before any plan.
  Result<LayerPlanAnswer> (*plan)(const LayerPlanRequest&) = nullptr;
};

std::span<const LayerPlannerEntry> layer_planners();
/// The row of a planner, or null.
const LayerPlannerEntry* find_layer_planner(std::string_view name);

/// Expands "all" and "PD2,P1" to the quirks of a planner. Errors (kUsage): a name that the planner does not know.
Result<std::set<std::string, std::less<>>> parse_compat(const LayerPlannerEntry& planner, std::string_view list);

/// Runs the planner and checks its answer with check_layer_plan. Errors: those of the planner.
Result<LayerPlanAnswer> plan_layers(const LayerPlannerEntry& planner, const LayerPlanRequest& request);

}  // namespace graphpipe::partitioner
