#pragma once
// Skips steps that would spoil the weights (--on-anomaly skip): all ranks tell rank 0 what they have found before the
// first update of a step, and make the step's updates or none, alike.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/executor/stage_state.h"
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

  /// Forgets the step before. `statistics` has what the step's forwards may change of these states; both outlive it.
  void begin(const std::vector<StageState*>& states, const KeptStatistics& statistics);
  /// What this rank has found wrong with a loss; the first counts, before whatever gradients show on any rank.
  void note(std::string problem);
  /// Once all gradients of the step are reduced and before the first update; on all ranks at the same place. Looks at
  /// the gradients and hears what all have found. Returns why the step is skipped, on all ranks alike; empty where it
  /// is not. Puts running statistics back where it is. `gather` null: there is no other rank.
  std::string decide(const std::vector<LossShare>& losses, Gather* gather, int32_t rank);
  bool skips() const { return !verdict_.empty(); }

 private:
  void look_at_gradients();
  struct Findings {
    std::vector<LossShare> losses;
    std::string of_loss, of_gradients;  // the first rank's that has some
  };
  std::string reason_to_skip(const Findings& findings);
  static void add(const std::vector<std::byte>& of_rank, Findings& findings);

  LossLimit limit_;  // rank 0's counts
  std::vector<StageState*> states_;
  const KeptStatistics* statistics_ = nullptr;
  std::string of_loss_, of_gradients_, verdict_;
};

}  // namespace graphpipe::runtime
