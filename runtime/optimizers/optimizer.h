#pragma once
// The optimizer of one copy of a stage's parameters: an update rule and its state, in place, one parameter at a time.
// The bits of a parameter's update do not depend on which other parameters share its stage.

#include <span>
#include <string_view>
#include <vector>

#include "runtime/optimizers/update_rule.h"

namespace graphpipe::runtime {

class Optimizer {
 public:
  /// `name` as in wire/optimizers.h; `terms` by parameter. `main_weights`: 16-bit parameters are updated in float32, as
  /// main weights that are part of their state (Micikevicius et al., Mixed Precision Training, 2018, section 3.1).
  Optimizer(std::string_view name, std::vector<UpdateTerms> terms, bool main_weights = false);
  /// Creates the state that the first update starts from, unless there is one. step() does it too: a call ahead is for
  /// memory that is to be there before.
  void begin(size_t index, const at::Tensor& weight);
  /// Updates `weight` in place, with the parameter's learning rate times `rate_factor`. `index` selects the state. The
  /// gradient has the type of the weight, or float32 with a main weight. It may be sparse by rows
  /// (kernels/table_rows.h) if takes_rows().
  void step(size_t index, at::Tensor& weight, const at::Tensor& gradient, double rate_factor = 1);
  /// One parameter of step_all().
  struct Update {
    size_t index = 0;
    at::Tensor* weight = nullptr;
    const at::Tensor* gradient = nullptr;
  };
  /// step() of each, bit for bit: parameters of the same terms are updated together, with fewer launches on a GPU.
  void step_all(std::span<const Update> updates, double rate_factor);
  /// Whether an update only changes the rows that a sparse gradient holds.
  bool takes_rows(size_t index, const at::Tensor& weight) const {
    return rule_->skips_zero_rows != nullptr && rule_->skips_zero_rows(terms_[index]) && !has_main_weight(weight);
  }

  /// What the next step of this parameter depends on in addition to weight and gradient: the rule's own tensors, which
  /// later steps change. Empty before begin(), and if the rule has no state.
  ParameterState state(size_t index) const;
  /// What state() returns after a step of a weight like this one: names, types and shapes, for reading them from a
  /// file.
  ParameterState fresh_state(size_t index, const at::Tensor& weight) const;
  /// Continues from such a state: the next steps have the same bits as those after the step that produced it. Takes
  /// ownership of the tensors. Needs the names, types and shapes of fresh_state(index, weight), in its order.
  void take_state(size_t index, ParameterState state);

  bool has_main_weight(const at::Tensor& weight) const {
    return main_weights_ && weight.is_floating_point() && weight.element_size() == 2;
  }
  /// The weight that is updated: the main weight, or the weight itself.
  at::Tensor updated_weight(size_t index, const at::Tensor& weight) const;
  /// Sets the elements of the weight, and of its main weight if it has one.
  void set_weight(size_t index, at::Tensor& weight, const at::Tensor& elements);

  /// The rate of the last step (UpdateRule::update); 0 before the first.
  double last_rate(size_t index) const { return states_[index].last_rate; }
  /// The scale of the last step, given its gradient; before the first one that of the gradient itself.
  UpdateScale scale(size_t index, const at::Tensor& gradient) const;

 private:
  struct State {
    ParameterState tensors;
    at::Tensor main_weight;  // undefined where there is none
    bool started = false;
    /// Whether an update has changed it. State that was taken counts as updated.
    bool updated = false;
    double last_rate = 0;
  };
  UpdateTerms terms_of(size_t index, double rate_factor) const;
  void step_together(std::span<const Update> updates, double rate_factor);

  const UpdateRule* rule_;
  bool main_weights_;
  std::vector<UpdateTerms> terms_;
  std::vector<State> states_;
};

}  // namespace graphpipe::runtime
