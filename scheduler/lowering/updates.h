#pragma once
// Weight updates inside a step (ir/schedule.h says what they mean): which version each item reads, and where the
// actions that make, show and drop versions stand. Two integers per stage describe PipeDream's weight stashing and
// vertical sync, 2BW and the parameter server; docs/schedules.md, section 3, in samples so that stages of any graph may
// differ.

#include "scheduler/policies/compute_order.h"

namespace graphpipe::scheduler {

struct UpdateRule {
  /// Samples of one update; the last of the step may be smaller. Multiples of what all replicas take in turn.
  int64_t update = 1;
  /// An item whose first sample is a reads the version that a - lag samples have made: floor((a - lag) / update), at
  /// least 0.
  int64_t lag = 0;
};

/// Fills the versions of a compute-only schedule and adds REDUCE, STEP, PUBLISH and FREE:
/// - REDUCE right after the last weight gradient of the replica's items in the update, ascending by update;
/// - STEP there too where nothing is reduced, else before the first forward that reads what it makes;
/// - PUBLISH before that forward, FREE after the last action that reads a version that is not the newest.
/// Stages without trainable weights keep version 0. Stages that reduce together get the longest update and lag of them.
/// Errors (kBadPlan): the rules of a stage make a forward read a version that its list makes only later; an update
/// would have samples of two steps.
Result<Schedule> add_updates(const StageGraph& graph, const Schedule& compute, IdMap<StageId, UpdateRule> rules);

/// Whether a schedule has actions that add_updates adds.
bool has_updates(const Schedule& schedule);

}  // namespace graphpipe::scheduler
