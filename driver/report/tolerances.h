#pragma once
// How much rounding `verify` allows (docs/semantics.md, section 2): tighter for what float32 alone computes than for
// what 16-bit numbers take part in.

#include <optional>

#include "driver/report/compare_tensors.h"
#include "ir/graph.h"

namespace graphpipe::driver {

/// Relative differences: of a step's loss, and of tensors, in parts of their norms.
struct Tolerances {
  double loss = 0;
  TensorTolerance tensors;
  /// The least precise format that explains a looser tolerance; kFloat32 where none does.
  ir::DType computes_in = ir::DType::kFloat32;
};

/// By the ancestry of each parameter's gradient, each output and the loss: a value that is computed in a 16-bit format
/// from data may round another way in sums of another order, and so may all that is computed from it. Stored 16-bit
/// numbers (masks, data, weights that are cast) are the same in both runs and loosen nothing. Sums of 16-bit numbers,
/// in another order and over other micro-batches, differ by a few of their units, 2^-12 and 2^-9; what a wrong
/// partition or a wrong weight of the loss does is more.
///
/// A bias that BatchNorm takes away has a gradient of zero (driver/report/zero_gradients.h). What is left of it is the
/// noise of its terms, of a few units of the largest gradients: two units of a 16-bit format that the terms are rounded
/// to, else sixteen of float32, count there (TensorTolerance::floors), since there is no gradient to get wrong.
///
/// `wanted`, the user's word, is about all tensors; losses, which are sums, keep their distance from it. With
/// `clips_norm` every update has a factor that is computed from all gradients, so all are as loose as the loosest.
Tolerances tolerances_of(const ir::Graph& graph, std::optional<double> wanted, bool clips_norm);

}  // namespace graphpipe::driver
