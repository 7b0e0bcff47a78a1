#pragma once
// By whose samples the loss is divided where weights change inside the step (docs/semantics.md, section 4).

#include <vector>

#include "ir/schedule.h"

namespace graphpipe::codegen {

/// Ranges of samples that follow each other and cover the step; each item of the loss's stage lies in one. They are the
/// updates of that stage. Where it trains nothing they are the shortest updates of another stage, joined where an item
/// of the loss lies across them: its loss has one divisor, so the updates that it spans share the mean over its samples
/// as they would if the stage had weights. Empty where there is one range, the step. `loss_stage` may be invalid.
std::vector<wire::SampleRange> loss_updates(ir::StageId loss_stage, const ir::Schedule& schedule);

}  // namespace graphpipe::codegen
