#pragma once
// How one optimizer changes one parameter. A rule is plain functions over tensors: what it remembers of a parameter is
// a list of named tensors, so that checkpoints take and give it without knowing the optimizer.

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "runtime/io/safetensors.h"
#include "wire/optimizers.h"

namespace graphpipe::runtime {

using wire::OptimizerNumbers;
/// Under the names that PyTorch's optimizers give their state: "exp_avg", "momentum_buffer", "step".
using ParameterState = std::vector<NamedTensor>;

/// What a rule knows of a parameter beside its numbers' values.
struct UpdateTerms {
  OptimizerNumbers numbers;
  /// Rows are looked up by ids: an embedding.
  bool is_table = false;
};

/// What rounding of gradients may do to an update, for `verify` (driver/report/compare_tensors.h).
struct UpdateScale {
  /// By element: the update divides by the root of it. Undefined: by nothing.
  at::Tensor second_moment;
  /// Norm of the gradients that the update is made of.
  double gradient_norm = 0;
};

struct UpdateRule {
  /// As in wire/optimizers.h.
  const char* name;
  /// The state of a parameter that was never updated: on the weight's device, always the same names, types and shapes
  /// for a weight of this shape and these terms. Empty where the rule remembers nothing.
  ParameterState (*fresh_state)(const at::Tensor& weight, const UpdateTerms& terms);
  /// One update, in place. The bits depend on these arguments only. Returns what the update was scaled with when it
  /// changed the weight: the learning rate, and more where the rule scales by norms too.
  double (*update)(at::Tensor& weight, const at::Tensor& gradient, ParameterState& state, const UpdateTerms& terms);
  /// After an update. Null: the update is linear in the gradients, and rounding stays what it is.
  UpdateScale (*scale)(const at::Tensor& gradient, const ParameterState& state, const UpdateTerms& terms) = nullptr;
  /// Whether a row of a weight, or of a state of as many rows, is left as it is where its gradient is zero, and
  /// computed from that row and its gradient alone. Null: it is not.
  bool (*spares_rows)(const UpdateTerms& terms) = nullptr;
};

}  // namespace graphpipe::runtime
