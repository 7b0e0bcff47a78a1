#pragma once
// Computes again what an exporter's optimiser has computed from a parameter that the file has as well.
//
// The distances of vector quantisation, |z|^2 - 2 z e + |e|^2, read a codebook, and sums of its squares; what RWKV
// mixes, x * m + y * (1 - m), reads m, and 1 - m, or a gate s = sigmoid(m), and 1 - s. Of these sums and differences
// PyTorch's default export keeps the results, which would stay as they are while the parameter trains. The optimiser
// notes which calls made them, though not with which numbers; the elements of the two tensors show whether they were
// these.

#include "frontend/restore_parameters.h"

namespace graphpipe::frontend {

/// Changes the body, and adds to what restore_parameters() has done, of which the nodes fit the body. Needs: the
/// parameters under their names. Nothing changes where the elements fit no such call, or those of several, where a node
/// may read the tensor for another value that began with the same elements, and where a line that reads it detaches
/// something.
void recompute_folded(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                      const ElementsOf& elements_of, Restoration& restored);

}  // namespace graphpipe::frontend
