#pragma once
// Skips steps that would corrupt the weights (--on-anomaly skip): all ranks report their findings to rank 0 before the
// first update of a step, and all of them make the step's updates, or none does.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/executor/stage_state.h"
#include "runtime/io/data.h"
#include "runtime/loss.h"
#include "runtime/training/kept_statistics.h"
#include "runtime/training/loss_limit.h"

namespace graphpipe::runtime {

class Gather;

class StepGuard {
 public:
  /// `earlier`: losses of the steps before, the oldest first.
  explicit StepGuard(double max_loss_factor, const std::vector<double>& earlier = {})
      : limit_(max_loss_factor, earlier) {}

  /// Discards the previous step. `statistics` holds what the step's forwards may change in these states; both must
  /// outlive it.
  void begin(const std::vector<StageState*>& states, const KeptStatistics& statistics);
  /// Records a problem that this rank has found with a loss; the first one counts, and takes precedence over gradients
  /// on any rank.
  void note(std::string problem);
  /// Call after all gradients of the step are reduced and before the first update, at the same place on all ranks.
  /// Checks the gradients and combines the findings of all ranks. Returns why the step is skipped, the same on all
  /// ranks; empty if it is not. Restores running statistics if it is. `gather` null: there is no other rank.
  std::string decide(const std::vector<LossShare>& losses, Gather* gather, int32_t rank);
  bool skips() const { return !verdict_.empty(); }

 private:
  void look_at_gradients();
  struct Findings {
    std::vector<LossShare> losses;
    std::string of_loss, of_gradients;  // from the first rank that reports one
  };
  std::string reason_to_skip(const Findings& findings);
  static void add(const std::vector<std::byte>& of_rank, Findings& findings);

  LossLimit limit_;  // only rank 0's is used
  std::vector<StageState*> states_;
  const KeptStatistics* statistics_ = nullptr;
  std::string of_loss_, of_gradients_, verdict_;
};

/// A step that trains with an update in which no label counts: the guard skips it, and without one (null) it ends the
/// run. Throws RunError (kBadData).
void check_defined(const LossScales& scales, StepGuard* guard);

}  // namespace graphpipe::runtime
