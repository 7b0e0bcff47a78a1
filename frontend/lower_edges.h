#pragma once
// Functions that PyTorch's exporter writes in parts, between which it chooses: a part that is not chosen may have no
// value or no slope where the function has both.

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// Where this Where ends such a function by its call (sinc, xlogy, atan2), computes it with PyTorch's value and
/// gradient at zero, and returns true.
Result<bool> lower_choice_at_edge(NodeContext& context);

}  // namespace graphpipe::frontend
