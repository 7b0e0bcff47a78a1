#pragma once
// The batch in the target of a Reshape whose sizes the file fixes.
//
// A file with a fixed batch n has n in such targets, alone or as a factor. Which axis of the target holds it follows
// from the order of the elements, which a Reshape keeps: the batch of the operand is n steps over a number of elements,
// and just one axis of the target takes these steps. So [T, n, H] becomes [T, n * H], [T * n, H] or [T, 1, n, H].

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// Puts the batch into the target of the Reshape that `context` is of, with a note, where the file fixes the batch and
/// one axis takes its steps; refuses it where several may. Otherwise the target stays, and the check of the number of
/// elements refuses it.
Status rebind_target(NodeContext& context, ir::Shape& target);

}  // namespace graphpipe::frontend
