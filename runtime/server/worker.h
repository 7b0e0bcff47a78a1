#pragma once
// A worker's end: it computes gradients with the weights that the server sent last.

#include "runtime/server/served_updates.h"

namespace graphpipe::runtime {

class ServedWorker final : public ServedUpdates {
 public:
  /// All arguments must outlive it; `state` is that of the rank's only stage.
  ServedWorker(const PlanTable& plan, Channels& channels, const Device& device, const StageState& state);

  void begin(const ResolvedProgram& program, int64_t first_step) override;
  void before_forward(StageState& state) override;
  void step(const ResolvedAction& action, StageState& state) override;
  void drain(StageState& state) override;

 private:
  void take_weights(StageState& state);
  void wait_for(const ParameterMessages& messages);

  const PlanTable& plan_;
  Channels& channels_;
  ParameterMessages gradients_, weights_;
  int64_t first_step_ = 0;
  /// The last gradients have been sent, and the weights that follow have not been received yet.
  bool behind_ = false;
};

}  // namespace graphpipe::runtime
