#pragma once

#include "passes/pass.h"

namespace graphpipe::passes {

/// Makes slices along one axis that together are all of a tensor, such as q, k and v of one product, one Split: its
/// gradient joins theirs instead of adding tensors that are zero elsewhere. A Gather of one row whose number is
/// constant counts as a slice, and becomes one where it stands alone. Needs: no gradient nodes.
Result<ir::Graph> split_slices(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
