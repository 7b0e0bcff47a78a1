#pragma once
// The training loop of a rank, and of the serial interpreter, which is all ranks at once: steps one after the other,
// and after each what its observers are to know. Steps between two drains are run as one, and told of one by one then.
// One message per drain goes from each rank to rank 0, with its losses,
// its requests and what its observers say. Where an observer may ask for something, rank 0's answer goes back to all;
// it is read one step later, so that no rank waits for it.

#include <functional>

#include "runtime/collectives/gather.h"
#include "runtime/loss.h"
#include "runtime/training/step_observer.h"

namespace graphpipe::runtime {

struct LoopSetup {
  std::vector<StepObserver*> observers;
  /// Null: there is no other rank.
  Gather* gather = nullptr;
  int32_t rank = 0;
  /// Runs the steps [first, last), drains, and says what each came to.
  std::function<std::vector<StepOutcome>(int64_t first, int64_t last)> run_steps;
  /// The step before which the pipeline drains next, where `step` begins it; none: it drains behind every step.
  std::function<int64_t(int64_t step)> next_drain;
};

/// Runs the steps [first, last), fewer where the ranks agree to end before. Returns the step after the last one that
/// ran. Observers are called in their order, which must be the same on all ranks.
int64_t run_steps(const LoopSetup& setup, int64_t first, int64_t last);

}  // namespace graphpipe::runtime
