#pragma once
// The optimizer of one copy of a stage's parameters: an update rule and what it remembers, in place, one parameter at a
// time. The bits of a parameter's update do not depend on which other parameters share its stage.

#include <string_view>
#include <vector>

#include "runtime/optimizers/update_rule.h"

namespace graphpipe::runtime {

class Optimizer {
 public:
  /// `name` as in wire/optimizers.h; the terms of each parameter. `main_weights`: parameters of 16 bits are updated as
  /// float32 numbers, which are part of their state (Micikevicius et al., Mixed Precision Training, 2018, section 3.1).
  Optimizer(std::string_view name, std::vector<UpdateTerms> terms, bool main_weights = false);
  /// Updates `weight` in place, with the parameter's learning rate times `rate_factor`. `index` says whose state to
  /// use; the state is made at the first call. The gradient has the type of the weight, or float32 with a main weight.
  /// It may be sparse by rows (kernels/table_rows.h) where takes_rows().
  void step(size_t index, at::Tensor& weight, const at::Tensor& gradient, double rate_factor = 1);
  /// Whether an update changes nothing but the rows that a sparse gradient holds.
  bool takes_rows(size_t index, const at::Tensor& weight) const {
    return rule_->spares_rows != nullptr && rule_->spares_rows(terms_[index]) && !has_main_weight(weight);
  }

  /// What the next step of this parameter depends on beside weight and gradient: the rule's own tensors, which later
  /// steps change. Empty before the first step, and where the rule remembers nothing.
  ParameterState state(size_t index) const;
  /// What state() gives after a step of a weight like this one: names, types and shapes, for reading them from a file.
  ParameterState fresh_state(size_t index, const at::Tensor& weight) const;
  /// Goes on from such a state: the next steps have the bits of those after the step that left it. Takes the tensors
  /// over. Needs the names, types and shapes of fresh_state(index, weight), in its order.
  void take_state(size_t index, ParameterState state);

  bool has_main_weight(const at::Tensor& weight) const {
    return main_weights_ && weight.is_floating_point() && weight.element_size() == 2;
  }
  /// The weight as it is updated: its main weight, or the weight itself.
  at::Tensor updated_weight(size_t index, const at::Tensor& weight) const;
  /// Gives the weight, and its main weight where it has one, these elements.
  void set_weight(size_t index, at::Tensor& weight, const at::Tensor& elements);

  /// What the last step was multiplied with (UpdateRule::update); 0 before the first.
  double last_rate(size_t index) const { return states_[index].last_rate; }
  /// Of the last step, with this gradient.
  UpdateScale scale(size_t index, const at::Tensor& gradient) const;

 private:
  struct State {
    ParameterState tensors;
    at::Tensor main_weight;  // undefined where there is none
    bool started = false;
    double last_rate = 0;
  };
  void begin(size_t index, const at::Tensor& weight);

  const UpdateRule* rule_;
  bool main_weights_;
  std::vector<UpdateTerms> terms_;
  std::vector<State> states_;
};

}  // namespace graphpipe::runtime
