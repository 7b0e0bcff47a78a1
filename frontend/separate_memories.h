#pragma once
// Gives attentions of torch.nn keys and values of their own again, which an exporter's optimiser has merged with those
// of another attention.
//
// The layers of nn.TransformerDecoder begin as copies and attend to one memory, so that in PyTorch's default export all
// of them read the keys and values of the first. Each splits parameters of its own, as the exporter's signature says,
// and the nodes that read the merged values name others in their calls.

#include "frontend/restore_parameters.h"

namespace graphpipe::frontend {

/// Changes the body, and adds to what restore_parameters() has done: the nodes between the parts of the parameters and
/// what another attention reads of them are there again for that one. They read the parts that the first reads:
/// restore_split() gives them those of their module. Parameters that rules tie to others stay theirs.
void separate_memories(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                       Restoration& restored);

}  // namespace graphpipe::frontend
