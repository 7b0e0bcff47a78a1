#pragma once
// What `verify` compares step by step: the serial interpreter of a plan records what every step begins and ends with,
// and the interpreter of the unpartitioned model follows it, starting every step with the same weights
// (wire::step_file).

#include <string>

#include "runtime/device/device.h"
#include "runtime/executor/stage_state.h"
#include "runtime/loss.h"
#include "runtime/reference/interpreter.h"
#include "runtime/training/step_observer.h"

namespace graphpipe::runtime {

/// Returns the tensors of a state with their names.
using NamesOf = std::vector<NamedTensor> (*)(const StageState&, const Device&);
/// Writes the tensors of all stages, each name once. An empty path: nothing.
void write_tensors(const std::string& path, const Interpreter& interpreter, const Device& device, NamesOf names_of);

/// Writes a folder of steps. Its arguments must outlive it.
class StepRecorder : public StepObserver {
 public:
  StepRecorder(const std::string& folder, const Interpreter& interpreter, const Device& device)
      : folder_(folder), interpreter_(interpreter), device_(device) {}

  void before_step(int64_t step) override;
  Request after_step(const StepFacts& facts) override;

 private:
  void write(int64_t step, const char* kind, NamesOf names_of) const;

  const std::string& folder_;
  const Interpreter& interpreter_;
  const Device& device_;
};

/// Runs the steps of such a folder.
///
/// Whether gradients overflow depends on how a batch is divided: a gradient of the whole batch is a sum over
/// micro-batches, and may exceed float16's range at a loss scale at which none of theirs does. So the follower does not
/// adapt a loss scale of its own. A step whose recorded gradients are finite runs at its recorded scale, or at the
/// largest smaller power of two at which it does not overflow. One that has overflowed runs at 16 times its scale,
/// since gradients of micro-batches may cancel in their sum; if it does not overflow even there, the records are wrong,
/// and the outcome shows it as a step that is not skipped.
class StepFollower {
 public:
  /// `scale`: that of the interpreter's losses; null if it has none. Its arguments must outlive it.
  StepFollower(const std::string& folder, Interpreter& interpreter, LossScale* scale)
      : folder_(folder), interpreter_(interpreter), scale_(scale) {}
  /// Throws RunError (kMalformedFile) if the folder has no such step.
  StepOutcome run_step(int64_t step);

 private:
  StepOutcome run_scaled(int64_t step);

  const std::string& folder_;
  Interpreter& interpreter_;
  LossScale* scale_;
};

}  // namespace graphpipe::runtime
