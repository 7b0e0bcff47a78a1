#pragma once
// The executors of a rank for evaluation data: one for full batches and, if the data end with fewer samples, one for
// these. They share states and channels with those of the training.

#include <memory>

#include "runtime/executor/evaluation_program.h"
#include "runtime/executor/executor.h"

namespace graphpipe::runtime {

class EvaluationExecutors {
 public:
  EvaluationExecutors(const DeviceProgram& program, Channels& channels, Data& data, const Device& device,
                      std::vector<StageState>& states, uint64_t seed);

  /// Like Executor::keep_outputs.
  void keep_outputs(KeptOutputs& outputs);
  StepOutcome run_batch(int64_t batch);
  void finish();

 private:
  struct Pass {
    Pass(const DeviceProgram& program, int64_t samples, Channels& channels, Data& data, const Device& device,
         std::vector<StageState>& states, uint64_t seed)
        : forwards(program, samples),
          resolved(resolve(forwards.program())),
          executor(*forwards.program().plan, resolved, channels, data, device, states, seed, no_updates,
                   Executor::Purpose::kEvaluate) {}
    UpdateSettings no_updates;
    EvaluationProgram forwards;
    ResolvedProgram resolved;
    Executor executor;
  };

  int64_t batch_;
  Data& data_;
  Pass whole_;
  std::unique_ptr<Pass> rest_;
  Pass* last_;
};

}  // namespace graphpipe::runtime
