#pragma once
// Gives the attentions of torch.nn their parameters back, of which an exporter's optimiser has kept another's.
//
// nn.MultiheadAttention splits in_proj_weight and in_proj_bias where query and key differ, as decoders do. In PyTorch's
// default export the node that splits says of no call, so that of two attentions whose biases began as zeros, or which
// nn.TransformerDecoder copied, one is split for both. The nodes that read the parts say of which module they are.

#include "frontend/restore_parameters.h"

namespace graphpipe::frontend {

/// Changes the body, and adds to what restore_parameters() has done, of which the nodes fit the body. Parameters that
/// rules tie to others stay theirs.
void restore_split(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                   Restoration& restored);

/// The name of what the nn.MultiheadAttention of this name splits: its weight, or its bias.
std::string in_projection_of(const std::string& module, bool is_weight);

/// The parameter of which an attention reads parts that has one of these names for its own; or empty.
std::string split_for_other(const GraphBody& body, const std::vector<std::string>& names);

}  // namespace graphpipe::frontend
