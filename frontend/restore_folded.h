#pragma once
// Gives the module's parameters back from which an exporter's optimiser has computed tensors beforehand.
//
// What depends on parameters alone is one tensor in PyTorch's default export: of x @ self.weight.T the file has
// MatMul(x, permute), of CLIP's temperature Mul(logits, exp), and neither parameter. The optimiser notes what a tensor
// was computed from (folding_note.h). Where that is one parameter, seen in another way, negated, as its exponential or
// with a number added that the code says (Gemma's 1 + weight), it follows from the tensor: permute becomes
// Transpose(weight) and exp Exp(logit_scale), as the program has them.
//
// A tensor may also stand for values of other parameters, which began with equal elements (merged_readers.h). Where one
// who reads it does not show which value that is, it stays, and untraced_parameters() finds what is lost.

#include "frontend/restore_parameters.h"

namespace graphpipe::frontend {

/// Changes the body, and adds to what restore_parameters() has done, of which the nodes fit the body.
void restore_folded(GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                    const ElementsOf& elements_of, Restoration& restored);

}  // namespace graphpipe::frontend
