#pragma once
// One generator for the lists of almost every synchronous schedule: they differ in a few integers per list (1F1B, kFkB,
// DAPPLE A and B, interleaved, zero bubble).
//
// Example: three micro-batches, warm_up 2, k 1: F0 F1 B0 F2 B1 B2. Split, with weight_lag 1:
// F0 F1 I0 F2 I1 W0 I2 W1 W2.

#include "scheduler/policies/compute_order.h"

namespace graphpipe::scheduler {

struct ListRule {
  /// Forwards before the first backward; at least 1.
  int64_t warm_up = 1;
  /// Then k backwards and k forwards in turn, until the forwards have run out; then the rest of the backwards.
  int64_t k = 1;
  /// Backwards are I and W apart: after an I the oldest W runs as soon as more than `weight_lag` items wait for theirs.
  bool split = false;
  int64_t weight_lag = 0;
};

/// `forwards` in the order in which they run; `backwards` (kBackward) in theirs, empty where there are none.
std::vector<Action> action_list(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                                const ListRule& rule);

/// The same rule for all items of one replica of a stage, in ascending order of samples. A stage without a backward
/// runs its forwards.
std::vector<Action> stage_action_list(const StageGraph& graph, StageId stage, int replica, const ListRule& rule);

}  // namespace graphpipe::scheduler
