#pragma once
// x[:B] of a tensor whose first axis holds several rows of each sample. Taken by number they are the rows of the first
// samples, which no micro-batch has; where all of these rows are equal, such as those of a class token that was
// repeated for each frame, every sample can take its own.

#include "frontend/node_context.h"

namespace graphpipe::frontend {

/// Whether a Slice takes the rows [0, k * B) of an axis 0 of c * B rows, 0 < k < c, and nothing else.
bool takes_first_rows(NodeContext& context);
/// Lowers such a Slice where the rows are equal; else binds its output so that a node which reads a part of each row
/// is asked again.
Status take_first_rows(NodeContext& context);
/// Lowers a Gather or Slice of such an output by `handler`, where the parts that it reads are equal in all rows.
/// Errors: kMixesSamples where they are not.
Status read_first_rows(NodeContext& context, Handler handler);
Diagnostic refuse_first_rows(const NodeContext& context);

}  // namespace graphpipe::frontend
