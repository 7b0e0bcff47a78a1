#pragma once
// A search over the orders of devices, by simulation: actions move into gaps in which their device waits.
// A move stays where the simulated order has a smaller score.
//
// Example: a device runs F0 F1 B0 F2 B1 and waits before B0 for its gradient. Where F2 has its input by then, F2 before
// B0 fills the gap, B1 follows B0 at once, and the device holds one more micro-batch in the meantime.
//
// Most moves gain nothing. So each is tried first without contention for links (simulate/relaxed_times.h), which costs
// a small part of a simulation; only what is earlier there, or may save memory, is simulated.

#include "scheduler/policies/policies.h"

namespace graphpipe::scheduler {

/// What a compute order is worth.
struct OrderScore {
  /// Bytes beyond the devices' memory, summed over devices.
  Bytes excess;
  Ticks makespan;
  /// Sum of the ends of all actions: how early things happen where the makespan is the same.
  Ticks ends;
  auto operator<=>(const OrderScore&) const = default;
};

/// Lowers and simulates the order, with the end of the step. Empty where it cannot run.
std::optional<OrderScore> score_order(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& compute,
                                      const LoweringOptions& lowering = {});

struct SearchOptions {
  /// Actions simulated in all, relaxed times counted as parts of them: the search is bounded by work, so that it gives
  /// the same result on every machine.
  int64_t max_actions = kSearchedActions;
  /// How far behind a gap an action may stand that is moved into it.
  size_t window = 32;
  /// How the orders that it compares are lowered: a norm of all gradients makes every device wait for the last.
  LoweringOptions lowering = {};
};

/// A schedule that is never worse than `compute`: no longer, within the devices' memory if `compute` is, and runnable
/// if it is. Takes what a policy gives: compute actions, and the actions of updates inside the step, which keep their
/// places among themselves; an item keeps its weight version, an overlapped pair stays one. Schedules that cannot run
/// come back as they are. Deterministic.
Schedule improve_order(const StageGraph& graph, const ir::Cluster& cluster, Schedule compute,
                       const SearchOptions& options = {});

}  // namespace graphpipe::scheduler
