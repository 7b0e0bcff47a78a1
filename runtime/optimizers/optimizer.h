#pragma once
// The optimizer of one copy of a stage's parameters: an update rule and what it remembers, in place, one parameter at a
// time. The bits of a parameter's update do not depend on which other parameters share its stage.

#include <string_view>
#include <vector>

#include "runtime/optimizers/update_rule.h"

namespace graphpipe::runtime {

class Optimizer {
 public:
  /// `name` as in wire/optimizers.h; the terms of each parameter.
  Optimizer(std::string_view name, std::vector<UpdateTerms> terms);
  /// Updates `weight` in place, with the parameter's learning rate times `rate_factor`. `index` says whose state to
  /// use; the state is made at the first call.
  void step(size_t index, at::Tensor& weight, const at::Tensor& gradient, double rate_factor = 1);

  /// What the next step of this parameter depends on beside weight and gradient: the rule's own tensors, which later
  /// steps change. Empty before the first step, and where the rule remembers nothing.
  const ParameterState& state(size_t index) const { return states_[index].tensors; }
  /// What state() gives after a step of a weight like this one: names, types and shapes, for reading them from a file.
  ParameterState fresh_state(size_t index, const at::Tensor& weight) const;
  /// Goes on from such a state: the next steps have the bits of those after the step that left it. Takes the tensors
  /// over. Needs the names, types and shapes of fresh_state(index, weight), in its order.
  void take_state(size_t index, ParameterState state);

  /// What the last step was multiplied with (UpdateRule::update); 0 before the first.
  double last_rate(size_t index) const { return states_[index].last_rate; }
  /// Of the last step, with this gradient.
  UpdateScale scale(size_t index, const at::Tensor& gradient) const;

 private:
  struct State {
    ParameterState tensors;
    bool started = false;
    double last_rate = 0;
  };
  const UpdateRule* rule_;
  std::vector<UpdateTerms> terms_;
  std::vector<State> states_;
};

}  // namespace graphpipe::runtime
