#pragma once

#include "passes/pass.h"

namespace graphpipe::passes {

/// Makes products with a weight, and the addition of a bias after them, one Linear each: MatMul, Gemm with factors of
/// 1, a weight that is transposed first. Needs: no gradient nodes. Ensures: what computed the replaced nodes is left
/// without readers, but for values that others read too.
Result<ir::Graph> fuse_linear(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
