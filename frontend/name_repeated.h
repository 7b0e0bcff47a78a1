#pragma once
// The exporter widens what is repeated before it repeats it: where that is computed from a parameter, its optimiser
// computes the widened tensor beforehand, which is the value itself and has no name.

#include "frontend/model.h"

namespace graphpipe::frontend {

/// Gives such tensors (of `self.queries.unsqueeze(0).repeat(n, 1, 1)`) the name of the value that the call repeats,
/// where its note has it and every axis of size 1 is one that the notes' calls put there: it then is one of the tensors
/// that restore_folded() knows.
void name_repeated(GraphBody& body);

}  // namespace graphpipe::frontend
