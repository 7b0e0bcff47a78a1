#pragma once
// The samples that divide the loss if weights change within the step (docs/semantics.md, section 4).

#include <vector>

#include "ir/schedule.h"

namespace graphpipe::codegen {

/// Consecutive ranges of samples that cover the step; each item of the loss's stage lies in one. They are the updates
/// of that stage. If it trains nothing they are the shortest updates of another stage, merged if an item of the loss
/// spans several: its loss has one divisor, so the updates that it spans share the mean over its samples as they would
/// if the stage had weights. Empty if there is only one range, the step. `loss_stage` may be invalid.
std::vector<wire::SampleRange> loss_updates(ir::StageId loss_stage, const ir::Schedule& schedule);

}  // namespace graphpipe::codegen
