#pragma once
// The optimizer of one copy of a stage's parameters: an update rule and what it remembers, in place, one parameter at a
// time. The bits of a parameter's update do not depend on which other parameters share its stage.

#include <string_view>
#include <vector>

#include "runtime/optimizers/update_rule.h"

namespace graphpipe::runtime {

struct OptimizerSettings {
  /// As in wire/optimizers.h.
  std::string_view name = "sgd";
  OptimizerNumbers numbers;
};
/// What the plan names, with the numbers of the options or, where they leave them open, its own.
OptimizerSettings optimizer_settings(std::string_view name, const wire::OptimizerOptions& options);

class Optimizer {
 public:
  Optimizer(const OptimizerSettings& settings, size_t parameters);
  /// Updates `weight` in place. `index` says whose state to use; the state is made at the first call.
  void step(size_t index, at::Tensor& weight, const at::Tensor& gradient);

  /// What the next step of this parameter depends on beside weight and gradient: the rule's own tensors, which later
  /// steps change. Empty before the first step, and where the rule remembers nothing.
  const ParameterState& state(size_t index) const { return states_[index].tensors; }
  /// What state() gives after a step of a weight like this one: names, types and shapes, for reading them from a file.
  ParameterState fresh_state(const at::Tensor& weight) const { return rule_->fresh_state(weight, numbers_); }
  /// Goes on from such a state: the next steps have the bits of those after the step that left it. Takes the tensors
  /// over. Needs the names, types and shapes of fresh_state(weight), in its order.
  void take_state(size_t index, ParameterState state);

  /// The mean square of the gradient, corrected for its start. Undefined before the first step, and where the update
  /// does not divide by its root.
  at::Tensor second_moment(size_t index) const;

 private:
  struct State {
    ParameterState tensors;
    bool started = false;
  };
  const UpdateRule* rule_;
  OptimizerNumbers numbers_;
  std::vector<State> states_;
};

}  // namespace graphpipe::runtime
