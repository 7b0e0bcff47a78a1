#pragma once

#include "passes/pass.h"

namespace graphpipe::passes {

/// Fuses each product with a weight, and the addition of a bias after it, into one Linear: MatMul, Gemm with factors of
/// 1, a weight that is transposed first. Needs: no gradient nodes. Ensures: the nodes that computed the replaced ones
/// are left without readers, except for values that others read too.
Result<ir::Graph> fuse_linear(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
