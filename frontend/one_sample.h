#pragma once
// Models whose file is one sample (ir::ModelSpec::one_sample): the graph's inputs and outputs have the samples in
// front, the nodes of the file see one of them.

#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// The shape with the samples in front, instead of a size of 1 that stands there or before the other dimensions.
ir::Shape with_samples(const ir::Shape& one);

/// A node OneSample that gives the value this shape. `name`: of the input or output, for messages.
Result<ir::ValueId> reshape_one_sample(ir::Graph& graph, const ModelText& name, ir::ValueId value, ir::Shape shape);

/// Gives the outputs of the model their axis of samples, but for single numbers, which a loss is.
Status give_outputs_samples(ir::Graph& graph);

}  // namespace graphpipe::frontend
