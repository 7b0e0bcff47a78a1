#pragma once
// How long actions take, in integer ticks: the costs of the stages, rounded once per (stage, action, sample count).

#include <vector>

#include "ir/cluster.h"
#include "scheduler/terms.h"

namespace graphpipe::scheduler {

/// Ticks of one second of the costs: nanoseconds for real costs. A standalone schedule whose costs are units uses
/// kTicksPerUnit, so that 1 is a million ticks.
inline constexpr double kTicksPerSecond = 1e9;
inline constexpr double kTicksPerUnit = 1e6;

/// Rounds to the nearest tick; caps at 2^53, so that sums of a thousand of them stay within 64 bits.
Ticks to_ticks(Seconds time, double ticks_per_second);

/// Ticks finer than any cost of the plan: the longest item takes about a million. 1 where all costs are zero.
double fine_ticks_per_second(const StageGraph& graph);

/// Per reduction group (reduction_groups) the time of one reduction: over the replicas of its stages, which a device
/// that holds several of them sums one after the other, then over the stages that share weights.
std::vector<Ticks> reduction_lengths(const StageGraph& graph, const ir::Cluster& cluster,
                                     const IdMap<StageId, int>& groups, double ticks_per_second);

class Durations {
 public:
  /// `action`: what each action costs beside its operators.
  Durations(const StageGraph& graph, double ticks_per_second, Seconds action = Seconds(0));
  /// Compute actions only. A whole backward takes the sum of its two halves, each rounded.
  Ticks of(const Action& action);

 private:
  struct Known {
    int64_t samples = -1;
    Ticks forward, input_gradient, weight_gradient;
  };
  const Known& look_up(size_t stage, int64_t samples);

  const StageGraph& graph_;
  double ticks_per_second_;
  Ticks action_;
  /// Per stage the sample counts met so far: one or two, or a few with slices of uneven micro-batches.
  std::vector<std::vector<Known>> known_;
};

}  // namespace graphpipe::scheduler
