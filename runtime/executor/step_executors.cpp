#include "runtime/executor/step_executors.h"

#include "runtime/executor/rest_of_epoch.h"

namespace graphpipe::runtime {

StepExecutors::StepExecutors(const DeviceProgram& program, const ResolvedProgram& resolved, Channels& channels,
                             Data& data, const Device& device, std::vector<StageState>& states, uint64_t seed,
                             const UpdateSettings& settings)
    : batch_(program.plan->batch),
      data_(data),
      whole_(*program.plan, resolved, channels, data, device, states, seed, settings),
      last_(&whole_) {
  if (data.rest() == batch_) return;
  const std::vector<wire::ActionRow> actions = actions_of_rest(program, data.rest());
  DeviceProgram of_rest = program;
  of_rest.actions = actions;
  rest_program_ = resolve(of_rest);
  rest_.emplace(*program.plan, *rest_program_, channels, data, device, states, seed, settings);
}

void StepExecutors::trace(Tracer& tracer) {
  whole_.trace(tracer);
  if (rest_) rest_->trace(tracer);
}

void StepExecutors::meter(StageMeter& meter) {
  whole_.meter(meter);
  if (rest_) rest_->meter(meter);
}

void StepExecutors::skip_anomalies(StepGuard& guard) {
  whole_.skip_anomalies(guard);
  if (rest_) rest_->skip_anomalies(guard);
}

void StepExecutors::scale_loss(LossScale& scale) {
  whole_.scale_loss(scale);
  if (rest_) rest_->scale_loss(scale);
}

void StepExecutors::keep_outputs(KeptOutputs& outputs) {
  whole_.keep_outputs(outputs);
  if (rest_) rest_->keep_outputs(outputs);
}

StepOutcome StepExecutors::run_step(int64_t step) {
  Executor* now = data_.samples_of(step) == batch_ ? &whole_ : &*rest_;
  // Messages of one are not looked after by the other.
  if (now != last_) last_->finish();
  last_ = now;
  return now->run_step(step);
}

void StepExecutors::finish() { last_->finish(); }

}  // namespace graphpipe::runtime
