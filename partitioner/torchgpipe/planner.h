#pragma once
// torchgpipe's balance (block partitions of sequences, Barany and Grinberg): layers in one order, moved between
// neighbouring blocks until heaviest and lightest differ by at most one largest layer (docs/planners.md, section 4).
// Beside it the exact minimum of the heaviest block, which is its bound.
//
// Example: layers of 1, 2, 3 and 6 us in two blocks. Scaled to 0, 0.2, 0.4 and 1 the equal halves weigh 0.2 and 1.4,
// more than 1 apart, so the third layer moves to the first block: 0.6 and 1, or 6 us each.

#include "partitioner/cost_models/unit_request.h"
#include "support/deadline.h"

namespace graphpipe::partitioner {

/// Ends of the blocks, as torchgpipe finds them (with a deadline: or as far as it has come); blocks may be empty.
/// Needs: 1 <= parts <= costs.
std::vector<size_t> torchgpipe_blocks(const std::vector<int64_t>& costs, size_t parts, Deadline* deadline = nullptr);
/// The smallest heaviest block of a sequence cut into at most so many blocks.
int64_t smallest_heaviest_block(const std::vector<int64_t>& costs, size_t parts);

std::span<const Quirk> torchgpipe_quirks();
/// One device per block, in a first-in-first-out order of the layers; costs are whole microseconds of forward and
/// backward. The objective is the heaviest block; the bound is for the same order.
Result<UnitAnswer> plan_torchgpipe(const UnitRequest& request);

}  // namespace graphpipe::partitioner
