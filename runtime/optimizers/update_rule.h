#pragma once
// How one optimizer changes one parameter. A rule is plain functions over tensors: its state for a parameter is a list
// of named tensors, so that checkpoints can save and restore it without knowing the optimizer.

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "runtime/io/safetensors.h"
#include "wire/optimizers.h"

namespace graphpipe::runtime {

using wire::OptimizerNumbers;
/// Under the names of PyTorch's optimizers: "exp_avg", "momentum_buffer", "step".
using ParameterState = std::vector<NamedTensor>;

/// What a rule knows about a parameter apart from the values of its elements.
struct UpdateTerms {
  OptimizerNumbers numbers;
  /// Whether rows are looked up by ids: an embedding.
  bool is_table = false;
};

/// Parameters of the same terms that are updated together, an element each.
struct UpdateGroup {
  std::vector<at::Tensor> weights, gradients;
  std::vector<ParameterState*> states;

  /// The tensors of this number in the states.
  std::vector<at::Tensor> of_states(size_t number) const {
    std::vector<at::Tensor> tensors;
    for (const ParameterState* state : states) tensors.push_back((*state)[number].tensor);
    return tensors;
  }
};

/// How rounding errors of gradients affect an update, for `verify` (driver/report/compare_tensors.h).
struct UpdateScale {
  /// By element: the update divides by its root. Undefined: no division.
  at::Tensor second_moment;
  /// Norm of the gradients that the update is based on.
  double gradient_norm = 0;
};

struct UpdateRule {
  /// As in wire/optimizers.h.
  const char* name;
  /// The state of a parameter that was never updated: on the weight's device, always the same names, types and shapes
  /// for a weight of this shape and these terms. Empty if the rule has no state.
  ParameterState (*fresh_state)(const at::Tensor& weight, const UpdateTerms& terms);
  /// One update, in place. The bits depend only on these arguments. Returns the factor with which the update changed
  /// the weight: the learning rate, times further factors if the rule also scales by norms.
  double (*update)(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms);
  /// The same for a group, bit for bit, with fewer launches on a GPU; the factor is the same for all. Null: the rule
  /// updates parameters one by one.
  double (*update_group)(const UpdateGroup& group, const UpdateTerms& terms) = nullptr;
  /// Called after an update. Null: the update is linear in the gradients, so rounding errors are not amplified.
  UpdateScale (*scale)(const at::Tensor& gradient, const ParameterState& state, const UpdateTerms& terms) = nullptr;
  /// Whether a row of a weight, or of a state with as many rows, is left unchanged if its gradient is zero, and is
  /// otherwise computed from that row and its gradient alone. Null: no.
  bool (*skips_zero_rows)(const UpdateTerms& terms) = nullptr;
};

}  // namespace graphpipe::runtime
