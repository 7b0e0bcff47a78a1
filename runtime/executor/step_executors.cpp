#include "runtime/executor/step_executors.h"

#include <utility>

#include "runtime/executor/shorter_program.h"

namespace graphpipe::runtime {

StepExecutors::StepExecutors(const DeviceProgram& program, const ResolvedProgram& resolved, Channels& channels,
                             Data& data, const Device& device, std::vector<StageState>& states, uint64_t seed,
                             const UpdateSettings& settings)
    : program_(program),
      channels_(channels),
      data_(data),
      device_(device),
      states_(states),
      seed_(seed),
      settings_(settings),
      whole_(*program.plan, resolved, channels, data, device, states, seed, settings),
      last_(&whole_) {
  if (data.rest() != program.plan->batch) executor_of(data.rest());
}

Executor& StepExecutors::executor_of(int64_t samples) {
  if (samples == program_.plan->batch * program_.plan->batches) return whole_;
  Shorter& shorter = shorter_[samples];
  if (shorter.executor) return *shorter.executor;
  shorter.actions = actions_of_first(program_, samples);
  DeviceProgram program = program_;
  program.actions = shorter.actions;
  shorter.resolved = resolve(program);
  shorter.executor.emplace(*program_.plan, shorter.resolved, channels_, data_, device_, states_, seed_, settings_);
  for (const auto& prepare : preparations_) prepare(*shorter.executor);
  return *shorter.executor;
}

void StepExecutors::for_all(std::function<void(Executor&)> prepare) {
  prepare(whole_);
  for (auto& [samples, shorter] : shorter_) prepare(*shorter.executor);
  preparations_.push_back(std::move(prepare));
}

void StepExecutors::trace(Tracer& tracer) {
  for_all([&tracer](Executor& each) { each.trace(tracer); });
}

void StepExecutors::meter(StageMeter& meter) {
  for_all([&meter](Executor& each) { each.meter(meter); });
}

void StepExecutors::skip_anomalies(StepGuard& guard) {
  for_all([&guard](Executor& each) { each.skip_anomalies(guard); });
}

void StepExecutors::scale_loss(LossScale& scale) {
  for_all([&scale](Executor& each) { each.scale_loss(scale); });
}

void StepExecutors::keep_outputs(KeptOutputs& outputs) {
  for_all([&outputs](Executor& each) { each.keep_outputs(outputs); });
}

void StepExecutors::overlap_reductions(wire::Overlap overlap) {
  for_all([overlap](Executor& each) { each.overlap_reductions(overlap); });
}
void StepExecutors::serve(ServedUpdates& served) {
  for_all([&served](Executor& each) { each.serve(served); });
}

std::vector<StepOutcome> StepExecutors::run_steps(int64_t first, int64_t last) {
  const int64_t samples = last - first == 1 ? data_.samples_of(first) : (last - first) * program_.plan->batch;
  Executor& now = executor_of(samples);
  // An executor does not look after the messages of another.
  if (&now != last_) last_->finish();
  last_ = &now;
  return now.run_steps(first, last);
}

void StepExecutors::finish() { last_->finish(); }

}  // namespace graphpipe::runtime
