#pragma once
// The executors of a rank: one for the plan's program and others for fewer samples (shorter_program.h), needed if the
// data end with a partial batch, or if a program of several steps must drain early. All use the same states and
// channels, one after the other.

#include <functional>
#include <map>
#include <optional>

#include "runtime/executor/executor.h"

namespace graphpipe::runtime {

class StepExecutors {
 public:
  /// `resolved` is that of `program`; `states` are those of resolved.instances, in order. Throws RunError (kUsage) if
  /// the data require steps that the schedule does not allow.
  StepExecutors(const DeviceProgram& program, const ResolvedProgram& resolved, Channels& channels, Data& data,
                const Device& device, std::vector<StageState>& states, uint64_t seed, const UpdateSettings& settings);

  /// Like those of Executor.
  void trace(Tracer& tracer);
  void meter(StageMeter& meter);
  void skip_anomalies(StepGuard& guard);
  void scale_loss(LossScale& scale);
  void keep_outputs(KeptOutputs& outputs);
  void serve(ServedUpdates& served);
  /// Those of whole batches: the others come too rarely.
  void record_calls() { whole_.record_calls(); }
  void overlap_reductions(wire::Overlap overlap);
  wire::GraphUse graph_use() const { return whole_.graph_use(); }
  /// Of the last step.
  std::optional<std::string> find_not_finite() const { return last_->find_not_finite(); }
  /// Runs the steps [first, last), at most as many as the plan's program covers, and drains.
  std::vector<StepOutcome> run_steps(int64_t first, int64_t last);
  void finish();
  Gather& gather() { return whole_.gather(); }

 private:
  struct Shorter {
    std::vector<wire::ActionRow> actions;
    ResolvedProgram resolved;
    std::optional<Executor> executor;
  };
  /// For the first `samples` samples of the program.
  Executor& executor_of(int64_t samples);
  /// Applies it to all executors, including those that are created later.
  void for_all(std::function<void(Executor&)> prepare);

  const DeviceProgram& program_;
  Channels& channels_;
  Data& data_;
  const Device& device_;
  std::vector<StageState>& states_;
  uint64_t seed_;
  const UpdateSettings& settings_;
  std::vector<std::function<void(Executor&)>> preparations_;
  Executor whole_;
  std::map<int64_t, Shorter> shorter_;  // by samples
  Executor* last_;
};

}  // namespace graphpipe::runtime
