#pragma once
// What cuts elements off at bounds: its gradient at a bound is another one for each of PyTorch's operators.

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// torch.clamp with a bound that is a tensor: its gradient at the bound is that within, where Max and Min divide it by
/// two. Everything else as it is.
Status lower_bounded(NodeContext& context);

}  // namespace graphpipe::frontend
