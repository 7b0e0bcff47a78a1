#pragma once
// The part of separate_samples that deals with Gather, GatherND and RoiAlign.

#include "passes/affine_index.h"
#include "passes/rebuild.h"

namespace graphpipe::passes {

/// A look-up by places that count up with the batch, as one that leaves the samples apart; nothing where it is none.
Result<Replacement> separate_look_up(const Rebuilding& step, AffineIndices& indices);

}  // namespace graphpipe::passes
