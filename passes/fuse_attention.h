#pragma once

#include "passes/pass.h"

namespace graphpipe::passes {

/// Fuses softmax(scale * q k^T + mask) v into one Attention node: the scale on either side of the product, as a factor
/// or a divisor; k transposed by permutations and reshapes of the leading axes; masks added, or absent. Masks
/// of windows (Liu et al., "Swin Transformer", ICCV 2021, section 3.2), which are added where the axis of windows is apart
/// from that of samples, give q, k and v this axis. A causal mask becomes the attribute `causal`. Needs: no gradient nodes. Ensures: the nodes that computed the scores are left
/// without readers, except for values that others read too.
Result<ir::Graph> fuse_attention(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
