#pragma once

#include "passes/pass.h"

namespace graphpipe::passes {

/// Replaces slices along one axis that together cover a tensor, such as q, k and v of one product, by one Split: its
/// gradient concatenates theirs instead of adding tensors that are zero elsewhere. A Gather of one row with a constant
/// index counts as a slice, and becomes one if it is not part of a Split. Needs: no gradient nodes.
Result<ir::Graph> split_slices(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
