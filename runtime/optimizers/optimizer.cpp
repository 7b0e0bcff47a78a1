#include "runtime/optimizers/optimizer.h"

#include "runtime/optimizers/registry.h"

namespace graphpipe::runtime {

Optimizer::Optimizer(std::string_view name, std::vector<UpdateTerms> terms)
    : rule_(&update_rule(name)), terms_(std::move(terms)), states_(terms_.size()) {}

void Optimizer::step(size_t index, at::Tensor& weight, const at::Tensor& gradient, double rate_factor) {
  State& state = states_[index];
  if (!state.started) state = {.tensors = fresh_state(index, weight), .started = true};
  UpdateTerms terms = terms_[index];
  terms.numbers.learning_rate *= rate_factor;
  state.last_rate = rule_->update(weight, gradient, state.tensors, terms);
}

ParameterState Optimizer::fresh_state(size_t index, const at::Tensor& weight) const {
  return rule_->fresh_state(weight, terms_[index]);
}

void Optimizer::take_state(size_t index, ParameterState state) {
  states_[index] = {.tensors = std::move(state), .started = true};
}

UpdateScale Optimizer::scale(size_t index, const at::Tensor& gradient) const {
  if (rule_->scale != nullptr && states_[index].started)
    return rule_->scale(gradient, states_[index].tensors, terms_[index]);
  return {.second_moment = {}, .gradient_norm = gradient.norm().item<double>()};
}

}  // namespace graphpipe::runtime
