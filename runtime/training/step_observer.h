#pragma once
// Observers of a training run, called after every step: progress, logs, checkpoints, evaluation. Each has its own file;
// the loop (loop.h) knows none of them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace graphpipe::runtime {

/// What a rank may request. All ranks do it together, at the end of the same step.
struct Request {
  bool checkpoint = false;
  bool end = false;
  bool operator==(const Request&) const = default;
};
inline Request operator|(Request a, Request b) { return {a.checkpoint || b.checkpoint, a.end || b.end}; }

/// What is known once a step has ended and the pipeline has drained: its updates are made, and none of its messages is
/// still needed.
struct StepFacts {
  /// Within the whole training, from 0: a resumed run continues counting.
  int64_t step = 0;
  /// The pipeline is empty after it: weights and optimizer state are the result of its updates. Otherwise they are
  /// already those of the step of the next drain.
  bool drains = true;
  /// No step follows, as is known already: the last of the range, or one that the ranks have agreed to end with.
  bool is_last = false;
  /// What all ranks do now, in the same way: requested after an earlier step.
  Request granted;
  /// The step's loss before its update; only rank 0 knows it, if the plan has one.
  std::optional<double> loss;
  /// On rank 0 until all losses were received, elsewhere until the rank's own part was done; between two drains, an
  /// equal share of the time.
  double seconds = 0;
  /// The number of samples trained by the step.
  int64_t samples = 0;
  /// Global, before clipping; negative if it was not requested.
  double gradient_norm = -1;
  /// On rank 0: why the step made no update; empty if it made one.
  std::string skipped;
  /// The factor on the loss for its gradients (runtime/optimizers/loss_scale.h); 0 without loss scaling.
  double loss_scale = 0;
  /// Whether, at that scale, some gradients were not finite, on any rank.
  bool overflow = false;
};

class StepObserver {
 public:
  virtual ~StepObserver() = default;

  /// Called before each step that follows a drain.
  virtual void before_step(int64_t step) { static_cast<void>(step); }
  /// Called on every rank. Its request is granted one or two steps later; see may_ask.
  virtual Request after_step(const StepFacts& facts) {
    static_cast<void>(facts);
    return {};
  }
  /// Whether after_step ever makes a request. Must depend only on what all ranks know: if no observer may, none waits
  /// for an answer.
  virtual bool may_ask() const { return false; }

  /// This rank's data for rank 0, sent with its losses, once for all steps since the last drain; empty: nothing.
  virtual std::vector<std::byte> tell() { return {}; }
  /// On rank 0, before after_step of the first of these steps: what the observer in the same position sent from each
  /// rank, by rank.
  virtual void hear(std::span<const std::vector<std::byte>> of_ranks) { static_cast<void>(of_ranks); }

  /// Called once, after the last step, on all ranks in the same order: they may wait for each other here. Where the
  /// data ended before the range did, no step was marked as the last.
  virtual void at_end() {}
  /// Called once instead, where a step ends the run with an error that this rank knows: other ranks may be gone. Must
  /// not throw.
  virtual void at_failure() noexcept {}
};

}  // namespace graphpipe::runtime
