#pragma once
// Ring slots: where the tensors of an item lie while it is alive.

#include "scheduler/lowering/items.h"

namespace graphpipe::scheduler {

/// Per program, per action: the item that the action belongs to, or -1.
using ItemLists = std::vector<std::vector<ItemIndex>>;

/// Fills `slot` of all actions that belong to an item, and schedule.slots. An item lives from its first action on its
/// device (its first receive, or its forward) to its last. slot = number of the item on its replica mod slots(stage);
/// slots(stage) is the least ring in which no two live items of a replica meet, at least 1.
void assign_slots(const ItemTable& items, const ItemLists& lists, Schedule& schedule);

}  // namespace graphpipe::scheduler
