#include "runtime/optimizers/optimizer.h"

#include <ATen/ops/_foreach_copy.h>

#include <algorithm>

#include "runtime/kernels/table_rows.h"
#include "runtime/optimizers/registry.h"

namespace graphpipe::runtime {

namespace {

constexpr const char* kMainWeight = "main_weight";

bool has_rows_of(const at::Tensor& weight, const at::Tensor& tensor) {
  return tensor.dim() > 0 && tensor.size(0) == weight.size(0);
}

// Of `rows`: the same, and whatever does not belong to rows as it is.
ParameterState rows_of_state(const at::Tensor& weight, const ParameterState& state, const at::Tensor& rows) {
  ParameterState part = state;
  for (NamedTensor& each : part)
    each.tensor = has_rows_of(weight, each.tensor) ? each.tensor.index_select(0, rows) : each.tensor.clone();
  return part;
}

// Updates the rows that the gradient holds, using the rule on weights of just a few of them, which are small.
double update_stored_rows(const UpdateRule& rule, at::Tensor& weight, const at::Tensor& gradient, ParameterState& state,
                          const UpdateTerms& terms) {
  const at::Tensor rows = stored_rows(gradient), elements = stored_elements(gradient);
  const int64_t all = rows.size(0), width = elements.numel() / std::max<int64_t>(all, 1);
  const int64_t together = wire::rows_updated_together(width);
  double rate = 0;
  ParameterState part_state;
  for (int64_t first = 0; first == 0 || first < all; first += together) {
    const int64_t count = std::min(together, all - first);
    const at::Tensor some = rows.narrow(0, first, count);
    at::Tensor part = weight.index_select(0, some);
    part_state.clear();
    part_state = rows_of_state(weight, state, some);
    rate = rule.update(part, elements.narrow(0, first, count), part_state, terms);
    weight.index_copy_(0, some, part);
    for (size_t i = 0; i < state.size(); ++i)
      if (has_rows_of(weight, state[i].tensor)) state[i].tensor.index_copy_(0, some, part_state[i].tensor);
  }
  // A count of updates, for example.
  for (size_t i = 0; i < state.size(); ++i)
    if (!has_rows_of(weight, state[i].tensor)) state[i].tensor.copy_(part_state[i].tensor);
  return rate;
}

}  // namespace

Optimizer::Optimizer(std::string_view name, std::vector<UpdateTerms> terms, bool main_weights)
    : rule_(&update_rule(name)), main_weights_(main_weights), terms_(std::move(terms)), states_(terms_.size()) {}

void Optimizer::begin(size_t index, const at::Tensor& weight) {
  if (states_[index].started) return;
  take_state(index, fresh_state(index, weight));
  states_[index].updated = false;
}

void Optimizer::step(size_t index, at::Tensor& weight, const at::Tensor& gradient, double rate_factor) {
  begin(index, weight);
  State& state = states_[index];
  state.updated = true;
  const UpdateTerms terms = terms_of(index, rate_factor);
  if (gradient.is_sparse()) {
    state.last_rate = update_stored_rows(*rule_, weight, gradient, state.tensors, terms);
    return;
  }
  if (!state.main_weight.defined()) {
    state.last_rate = rule_->update(weight, gradient, state.tensors, terms);
    return;
  }
  state.last_rate = rule_->update(state.main_weight, gradient.to(at::kFloat), state.tensors, terms);
  weight.copy_(state.main_weight);
}

UpdateTerms Optimizer::terms_of(size_t index, double rate_factor) const {
  UpdateTerms terms = terms_[index];
  terms.numbers.learning_rate *= rate_factor;
  return terms;
}

void Optimizer::step_all(std::span<const Update> updates, double rate_factor) {
  std::vector<std::vector<Update>> groups;
  for (const Update& update : updates) {
    if (rule_->update_group == nullptr || update.gradient->is_sparse()) {
      step(update.index, *update.weight, *update.gradient, rate_factor);
      continue;
    }
    const auto joins = [&](const std::vector<Update>& group) {
      return terms_[group.front().index].numbers == terms_[update.index].numbers &&
             group.front().weight->scalar_type() == update.weight->scalar_type();
    };
    const auto group = std::ranges::find_if(groups, joins);
    std::vector<Update>& joined = group == groups.end() ? groups.emplace_back() : *group;
    joined.reserve(updates.size());
    joined.push_back(update);
  }
  for (const std::vector<Update>& group : groups) step_together(group, rate_factor);
}

void Optimizer::step_together(std::span<const Update> updates, double rate_factor) {
  UpdateGroup group;
  group.weights.reserve(updates.size());
  group.gradients.reserve(updates.size());
  group.states.reserve(updates.size());
  std::vector<at::Tensor> weights;
  for (const auto& [index, weight, gradient] : updates) {
    begin(index, *weight);
    State& state = states_[index];
    state.updated = true;
    const bool has_main = state.main_weight.defined();
    group.weights.push_back(has_main ? state.main_weight : *weight);
    group.gradients.push_back(has_main ? gradient->to(at::kFloat) : *gradient);
    group.states.push_back(&state.tensors);
    if (has_main) weights.push_back(*weight);
  }
  const double rate = rule_->update_group(group, terms_of(updates.front().index, rate_factor));
  for (const Update& update : updates) states_[update.index].last_rate = rate;
  if (!weights.empty()) at::_foreach_copy_(weights, group.weights);
}

ParameterState Optimizer::fresh_state(size_t index, const at::Tensor& weight) const {
  if (!has_main_weight(weight)) return rule_->fresh_state(weight, terms_[index]);
  const at::Tensor main_weight = weight.to(at::kFloat);
  ParameterState state = rule_->fresh_state(main_weight, terms_[index]);
  state.push_back({kMainWeight, main_weight});
  return state;
}

ParameterState Optimizer::state(size_t index) const {
  ParameterState state = states_[index].tensors;
  if (states_[index].main_weight.defined()) state.push_back({kMainWeight, states_[index].main_weight});
  return state;
}

void Optimizer::take_state(size_t index, ParameterState state) {
  at::Tensor main_weight;
  if (!state.empty() && state.back().name == kMainWeight) {
    main_weight = state.back().tensor;
    state.pop_back();
  }
  states_[index] = {
      .tensors = std::move(state), .main_weight = std::move(main_weight), .started = true, .updated = true};
}

at::Tensor Optimizer::updated_weight(size_t index, const at::Tensor& weight) const {
  if (states_[index].main_weight.defined()) return states_[index].main_weight;
  return has_main_weight(weight) ? weight.to(at::kFloat) : weight;
}

void Optimizer::set_weight(size_t index, at::Tensor& weight, const at::Tensor& elements) {
  weight.copy_(elements);
  if (!has_main_weight(weight)) return;
  begin(index, weight);
  states_[index].main_weight.copy_(elements);
}

UpdateScale Optimizer::scale(size_t index, const at::Tensor& gradient) const {
  if (rule_->scale != nullptr && states_[index].updated)
    return rule_->scale(gradient, states_[index].tensors, terms_[index]);
  return {.second_moment = {}, .gradient_norm = gradient.norm().item<double>()};
}

}  // namespace graphpipe::runtime
