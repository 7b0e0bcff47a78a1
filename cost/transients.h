#pragma once
// Memory that is live in addition to the stash while an operator runs; part of price().

#include "cost/price.h"

namespace graphpipe::cost {

/// The value whose memory a chain of views refers to.
ir::ValueId memory_of_value(const ir::Graph& graph, ir::ValueId value);

/// For every node the bytes of the values that are live while it runs, in the order of the node ids within its function
/// (forward, input gradient or weight gradient): its results, what earlier nodes of the function computed for later
/// ones, and what its kernel allocates. Values that outlive the function are counted elsewhere and excluded here:
/// forward values that a gradient reads again, and gradients that a weight gradient reads. Views count as the value
/// that they refer to.
IdMap<ir::NodeId, ir::SampleFunction> transient_bytes(const ir::Graph& graph, Samples batch);

}  // namespace graphpipe::cost
