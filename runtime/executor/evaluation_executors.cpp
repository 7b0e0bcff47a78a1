#include "runtime/executor/evaluation_executors.h"

namespace graphpipe::runtime {

EvaluationExecutors::EvaluationExecutors(const DeviceProgram& program, Channels& channels, Data& data,
                                         const Device& device, std::vector<StageState>& states, uint64_t seed)
    : batch_(program.plan->batch),
      data_(data),
      whole_(program, batch_, channels, data, device, states, seed),
      last_(&whole_) {
  if (data.rest() != batch_) rest_ = std::make_unique<Pass>(program, data.rest(), channels, data, device, states, seed);
}

void EvaluationExecutors::keep_outputs(KeptOutputs& outputs) {
  whole_.executor.keep_outputs(outputs);
  if (rest_) rest_->executor.keep_outputs(outputs);
}

StepOutcome EvaluationExecutors::run_batch(int64_t batch) {
  Pass* const now = data_.samples_of(batch) == batch_ ? &whole_ : rest_.get();
  if (now != last_) finish();
  last_ = now;
  return now->executor.run_step(batch);
}

void EvaluationExecutors::finish() { last_->executor.finish(); }

}  // namespace graphpipe::runtime
