#pragma once
// What looks on at a training run, one step after the other: progress, logs, checkpoints, evaluation. Each is a file of
// its own; the loop (loop.h) knows none of them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace graphpipe::runtime {

/// What a rank may ask for. All ranks do it together, at the end of one and the same step.
struct Request {
  bool checkpoint = false;
  bool end = false;
  bool operator==(const Request&) const = default;
};
inline Request operator|(Request a, Request b) { return {a.checkpoint || b.checkpoint, a.end || b.end}; }

/// What is known once a step has ended, and the pipeline has drained: its updates are made, and no message of it is
/// needed any more.
struct StepFacts {
  /// Of the whole training, from 0: a resumed run goes on counting.
  int64_t step = 0;
  /// The pipeline is empty behind it: weights and optimizer are what its updates have made of them. Else they are
  /// already those of the step of the next drain.
  bool drains = true;
  /// No step comes after it: the last of the range, or one that the ranks have agreed to end with.
  bool is_last = false;
  /// What all ranks do now, each alike: asked for after an earlier step.
  Request granted;
  /// The step's loss before its update; rank 0 alone knows it, where the plan has one.
  std::optional<double> loss;
  /// On rank 0 until all losses were there, elsewhere until the rank's own part was done; an equal part of the time
  /// between two drains.
  double seconds = 0;
  /// That the step trained.
  int64_t samples = 0;
  /// Global, before clipping; negative where none was asked for.
  double gradient_norm = -1;
  /// On rank 0: why the step made no update; empty where it made them.
  std::string skipped;
  /// What the loss was multiplied with for its gradients (runtime/optimizers/loss_scale.h); 0 where nothing is scaled.
  double loss_scale = 0;
  /// At that scale the gradients were not all finite, on any rank.
  bool overflow = false;
};

class StepObserver {
 public:
  virtual ~StepObserver() = default;

  /// Before each step that begins behind a drain.
  virtual void before_step(int64_t step) { static_cast<void>(step); }
  /// Called on every rank. What it asks for is granted one or two steps later; see may_ask.
  virtual Request after_step(const StepFacts& facts) {
    static_cast<void>(facts);
    return {};
  }
  /// Whether after_step ever asks. Must follow from what all ranks know alike: without any that may, none waits for
  /// an answer.
  virtual bool may_ask() const { return false; }

  /// What this rank has to say to rank 0 with its losses, once for all steps since the last drain; empty: nothing.
  virtual std::vector<std::byte> tell() { return {}; }
  /// On rank 0, before after_step of the first of these steps: what the observer of the same place said on each rank,
  /// by rank.
  virtual void hear(std::span<const std::vector<std::byte>> of_ranks) { static_cast<void>(of_ranks); }

  /// Once, after the last step, on all ranks in the same order: they may wait for each other here.
  virtual void at_end() {}
};

}  // namespace graphpipe::runtime
