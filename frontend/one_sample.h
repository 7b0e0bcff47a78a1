#pragma once
// Models whose file describes a single sample (ir::ModelSpec::one_sample): the graph's inputs and outputs have a
// leading sample axis, while the nodes of the file see one sample.

#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// The shape with a leading sample axis, replacing a leading size of 1 or added before the other dimensions.
ir::Shape with_samples(const ir::Shape& one);

/// Appends a node OneSample that gives the value this shape. `name`: of the input or output, for messages.
Result<ir::ValueId> reshape_one_sample(ir::Graph& graph, const ModelText& name, ir::ValueId value, ir::Shape shape);

/// Gives the outputs of the model their sample axis, except scalars, such as a loss.
Status give_outputs_samples(ir::Graph& graph);

}  // namespace graphpipe::frontend
