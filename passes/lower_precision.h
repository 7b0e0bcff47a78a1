#pragma once
// Mixed precision (Micikevicius et al., Mixed Precision Training, ICLR 2018): operators whose entry allows it compute
// in 16 bits (ops::Precision), and casts are inserted where types change.

#include "passes/pass.h"

namespace graphpipe::passes {

/// Does nothing if the context's precision is float32. Parameters, inputs, outputs and the loss keep their types: a
/// weight is cast where it is first read, once for all readers. Values that the model itself computes in a type other
/// than float32 are unchanged. Needs: no gradient nodes. Ensures: same inputs, parameters and outputs in the same
/// order.
Result<ir::Graph> lower_precision(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
