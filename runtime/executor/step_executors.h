#pragma once
// The executors of a rank: one of whole steps and, where the data end with fewer samples than a batch, one of the steps
// that train these alone. Both work on the same states and channels, one after the other.

#include <optional>

#include "runtime/executor/executor.h"

namespace graphpipe::runtime {

class StepExecutors {
 public:
  /// `resolved` is that of `program`; `states` are those of resolved.instances, in order. Throws RunError (kUsage)
  /// where the data ask for steps that the schedule does not allow.
  StepExecutors(const DeviceProgram& program, const ResolvedProgram& resolved, Channels& channels, Data& data,
                const Device& device, std::vector<StageState>& states, uint64_t seed, const UpdateSettings& settings);

  /// As those of an Executor.
  void trace(Tracer& tracer);
  void meter(StageMeter& meter);
  void skip_anomalies(StepGuard& guard);
  void scale_loss(LossScale& scale);
  void keep_outputs(KeptOutputs& outputs);
  /// Of the last step.
  std::optional<std::string> find_not_finite() const { return last_->find_not_finite(); }
  StepOutcome run_step(int64_t step);
  void finish();
  Gather& gather() { return whole_.gather(); }

 private:
  int64_t batch_;
  Data& data_;
  Executor whole_;
  std::optional<ResolvedProgram> rest_program_;
  std::optional<Executor> rest_;
  Executor* last_;
};

}  // namespace graphpipe::runtime
