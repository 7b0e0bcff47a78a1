#pragma once
// What lives beside the stash while an operator runs; part of price().

#include "cost/price.h"

namespace graphpipe::cost {

/// The value whose memory a chain of views looks at.
ir::ValueId memory_of_value(const ir::Graph& graph, ir::ValueId value);

/// For every node the bytes of the values that are alive while it runs, in the order of the node ids within its
/// function (forward, input gradient or weight gradient): its results, what earlier nodes of the function made for
/// later ones, and what its kernel allocates for itself. Values that outlive the function are counted elsewhere and
/// left out here: forward values that a gradient reads again, and gradients that a weight gradient reads. Views are the
/// value that they look at.
IdMap<ir::NodeId, ir::SampleFunction> transient_bytes(const ir::Graph& graph, Samples batch);

}  // namespace graphpipe::cost
