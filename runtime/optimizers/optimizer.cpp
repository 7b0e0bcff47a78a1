#include "runtime/optimizers/optimizer.h"

#include "runtime/optimizers/registry.h"

namespace graphpipe::runtime {

OptimizerSettings optimizer_settings(std::string_view name, const wire::OptimizerOptions& options) {
  return {.name = name, .numbers = wire::numbers_of(wire::optimizer_named(name), options)};
}

Optimizer::Optimizer(const OptimizerSettings& settings, size_t parameters)
    : rule_(&update_rule(settings.name)), numbers_(settings.numbers), states_(parameters) {}

void Optimizer::step(size_t index, at::Tensor& weight, const at::Tensor& gradient) {
  State& state = states_[index];
  if (!state.started) state = {.tensors = fresh_state(weight), .started = true};
  rule_->update(weight, gradient, state.tensors, numbers_);
}

void Optimizer::take_state(size_t index, ParameterState state) {
  states_[index] = {.tensors = std::move(state), .started = true};
}

at::Tensor Optimizer::second_moment(size_t index) const {
  if (rule_->second_moment == nullptr || !states_[index].started) return {};
  return rule_->second_moment(states_[index].tensors, numbers_);
}

}  // namespace graphpipe::runtime
