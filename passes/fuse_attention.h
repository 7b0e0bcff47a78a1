#pragma once

#include "passes/pass.h"

namespace graphpipe::passes {

/// Makes softmax(scale * q k^T + mask) v one Attention node: the scale on either side of the product, as a factor or a
/// divisor; k transposed by permutations and reshapes of the leading axes; the mask added, or absent. A mask that hides
/// what is later becomes the attribute `causal`. Needs: no gradient nodes. Ensures: what computed the scores is left
/// without readers, but for values that others read too.
Result<ir::Graph> fuse_attention(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
