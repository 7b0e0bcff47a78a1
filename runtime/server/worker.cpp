#include "runtime/server/worker.h"

namespace graphpipe::runtime {

ServedWorker::ServedWorker(const PlanTable& plan, Channels& channels, const Device& device, const StageState& state)
    : plan_(plan),
      channels_(channels),
      gradients_(channels, device, state, state.replica),
      weights_(channels, device, state, state.replica) {}

void ServedWorker::begin(const ResolvedProgram&, int64_t first_step) {
  first_step_ = first_step;
  behind_ = false;
}

void ServedWorker::before_forward(StageState& state) {
  if (behind_) take_weights(state);
}

void ServedWorker::step(const ResolvedAction& action, StageState& state) {
  std::vector<at::Tensor>& gradients = gradients_of(state, action.update);
  complete_gradients(plan_, state, gradients);
  gradients_.send(gradients, /*to_server=*/true, first_step_, action.row.range);
  ++state.newest;
  behind_ = true;
}

void ServedWorker::drain(StageState& state) { take_weights(state); }

// Nothing computes meanwhile, so they can be received directly into the weights.
void ServedWorker::take_weights(StageState& state) {
  weights_.receive(state.weights, /*to_server=*/false, first_step_, {});
  wait_for(weights_);
  weights_.take();
  wait_for(gradients_);
  if (!state.keeps_gradients) state.gradients.clear();
  behind_ = false;
}

void ServedWorker::wait_for(const ParameterMessages& messages) {
  channels_.wait_until([&] { return messages.done(); }, [&] { return plan_.server; });
}

}  // namespace graphpipe::runtime
