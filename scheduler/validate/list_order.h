#pragma once
// The rules of actions that belong next to each other, or inside or outside of an item's life, in one device's list:
// slices and concatenations, memory, flushes (ir/schedule.h says what they mean). The validator and the simulator both
// refuse what breaks them.

#include <optional>

#include "scheduler/terms.h"

namespace graphpipe::scheduler {

struct ListProblem {
  size_t program = 0, position = 0;
  /// To be read after the action's name, or after "<missing> is missing: ".
  std::string_view what;
  /// An action that should stand before `position` and does not.
  std::optional<Action> missing;
};

/// The first action that breaks a rule. `item_of`: per program and action the item that it works on, or -1 where it
/// works on none; `range_of`: per item its samples. Needs: actions that pass action_problem, and item actions inside
/// their items.
std::optional<ListProblem> list_problem(const StageGraph& graph, const Schedule& schedule,
                                        const std::vector<std::vector<int32_t>>& item_of,
                                        const std::vector<SampleRange>& range_of);

}  // namespace graphpipe::scheduler
