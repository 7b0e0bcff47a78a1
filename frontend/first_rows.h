#pragma once
// x[:B] of a tensor whose first axis holds several rows of each sample. By index these are the rows of the first
// samples, which no micro-batch has; if all of these rows are equal, such as those of a class token that was repeated
// for each frame, every sample can use its own.

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// Whether all rows of the value's axis 0 are equal, as determined by the nodes that compute it, none of which may be
/// random. False if that takes too many nodes.
bool rows_are_equal(Lowering& lowering, ir::ValueId value);

/// Whether a Slice takes the rows [0, k * B) of an axis 0 of c * B rows, 0 < k < c, and nothing else.
bool takes_first_rows(NodeContext& context);
/// Lowers such a Slice if the rows are equal; otherwise binds its output so that a node that reads part of each row can
/// decide again.
Status take_first_rows(NodeContext& context);
/// Lowers a Gather or Slice of such an output with `handler`, if the parts that it reads are equal in all rows. Errors:
/// kMixesSamples if they are not.
Status read_first_rows(NodeContext& context, Handler handler);
Diagnostic refuse_first_rows(const NodeContext& context);

}  // namespace graphpipe::frontend
