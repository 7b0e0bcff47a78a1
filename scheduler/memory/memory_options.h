#pragma once
// What the memory of a schedule is counted by.

#include <functional>

#include "ir/item_memory.h"
#include "scheduler/terms.h"

namespace graphpipe::scheduler {

/// What an item of so many samples does in the code of its stage, whose backward is one function or two.
using CountedItems = std::function<ir::ItemMemory(StageId, Samples, bool joins_backward)>;

struct MemoryOptions {
  /// PlanGraph::optimizer_state_per_weight_byte.
  double optimizer_state_per_weight_byte = 0;
  /// Where it is given, the gradients of weights count from the first weight gradient of a replica's step on. Null:
  /// bounds from the prices of the stages, gradients always.
  CountedItems item = nullptr;
};

}  // namespace graphpipe::scheduler
