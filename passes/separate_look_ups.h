#pragma once
// The part of separate_samples that deals with Gather, GatherND and RoiAlign.

#include "passes/affine_index.h"
#include "passes/rebuild.h"

namespace graphpipe::passes {

/// Rewrites a look-up by indices that count up with the batch into one that keeps the samples separate; nothing if it
/// is not such a look-up.
Result<Replacement> separate_look_up(const Rebuilding& step, AffineIndices& indices);

}  // namespace graphpipe::passes
