#pragma once
// Gives recurrent layers the parameters back of which an exporter's optimiser has packed the operands beforehand.
//
// ONNX has the gates of an LSTM and a GRU in another order than PyTorch, and both biases in one tensor: the exporter
// writes nodes that cut the parameters and join the parts, of which PyTorch's default export leaves the result alone,
// under names of its own, unless it is large. The call of the layer says which parameters it takes, so that they follow
// from the operand: they are cut and joined again, as in the export without the optimiser.

#include "frontend/restore_parameters.h"

namespace graphpipe::frontend {

/// Changes the body, and adds to what restore_parameters() has done, of which the nodes fit the body. A tensor that any
/// node reads in another way stays as it is.
void restore_recurrent(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                       const ElementsOf& elements_of, Restoration& restored);

}  // namespace graphpipe::frontend
