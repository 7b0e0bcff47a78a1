#pragma once
// The end of a synchronous step: what each device does once its compute actions for the step's gradients are over.

#include <vector>

#include "scheduler/terms.h"

namespace graphpipe::scheduler {

/// Adds to each program a flush, where there are copies a reduction, and an optimizer step for each stage and replica
/// that it trains; with `norm` a global gradient norm before the steps. A reduction comes right behind the last compute
/// action of its replica and what that sends, so that its messages move beside the backwards of the device's other
/// stages; everything else comes at the end. `groups_done`: all reduction groups (insert_transfers.h), in the order in
/// which the whole schedule ends their compute actions. Reductions keep to that order on every device, where this
/// makes one wait for another.
void finish_step(const StageGraph& graph, const std::vector<int>& groups_done, bool norm, Schedule& schedule);

}  // namespace graphpipe::scheduler
