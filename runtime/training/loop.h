#pragma once
// The training loop of a rank, and of the serial interpreter, which stands for all ranks: steps one after the other,
// and after each a notification of its observers. Steps between two drains are run as one, and then reported one by
// one. At each drain every rank sends one message to rank 0, with its losses, its requests and its observers' data. If
// an observer may make requests, rank 0's answer goes back to all; it is read one step later, so that no rank waits for
// it.

#include <functional>

#include "runtime/collectives/gather.h"
#include "runtime/loss.h"
#include "runtime/training/step_observer.h"

namespace graphpipe::runtime {

struct LoopSetup {
  std::vector<StepObserver*> observers;
  /// Null if there is no other rank.
  Gather* gather = nullptr;
  int32_t rank = 0;
  /// Runs the steps [first, last), drains, and returns the outcome of each.
  std::function<std::vector<StepOutcome>(int64_t first, int64_t last)> run_steps;
  /// The step before which the pipeline drains next, if `step` begins a segment; empty: it drains after every step.
  std::function<int64_t(int64_t step)> next_drain;
  /// Whether there are data for `step`, asked before each but the first, with the same answer on all ranks; empty: yes.
  std::function<bool(int64_t step)> has_data;
};

/// Runs the steps [first, last), fewer if the ranks agree to stop early or the data end. Returns the step after the
/// last one that ran. Observers are called in order; the order must be the same on all ranks.
int64_t run_steps(const LoopSetup& setup, int64_t first, int64_t last);

}  // namespace graphpipe::runtime
