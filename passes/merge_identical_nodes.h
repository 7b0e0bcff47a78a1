#pragma once
#include "passes/pass.h"

namespace graphpipe::passes {

/// Merges nodes with the same op, attributes and inputs if every output is an integer, a bool, or the same for all
/// samples: masks, position tables and transposed weights, which exporters write once per layer. Nodes that draw random
/// numbers or update state are left alone, and parameters are never merged: ties are the model's decision. Needs: no
/// gradient nodes yet. Ensures: the first node of each set stays, the others are gone.
Result<ir::Graph> merge_identical_nodes(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
