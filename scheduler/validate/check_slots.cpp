// Ring slots.

#include <algorithm>
#include <map>
#include <optional>

#include "scheduler/validate/check_tables.h"

namespace graphpipe::scheduler::check {
namespace {

/// The position of the last action of each item.
std::vector<int> last_actions(const Tables& tables) {
  std::vector<int> last(tables.items.size(), -1);
  for_each_action(tables, [&](Place place, const Action&) {
    const int item = tables.item_of[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)];
    if (item >= 0) last[static_cast<size_t>(item)] = place.position;
  });
  return last;
}

}  // namespace

Diagnostics check_slots(const Tables& tables) {
  const std::vector<int> last = last_actions(tables);
  /// Per stage, replica and slot: the item in it, if any.
  std::map<std::tuple<int32_t, int32_t, int32_t>, std::optional<int>> slots;
  std::vector<int> slot_of(tables.items.size(), -1);
  Diagnostics problems;
  for_each_action(tables, [&](Place place, const Action& action) {
    const int item = tables.item_of[static_cast<size_t>(place.program)][static_cast<size_t>(place.position)];
    if (item < 0 || !problems.empty()) return;
    if (action.slot < 0) {
      problems.push_back(tables.problem(place, "has no ring slot", "give every action of an item its slot"));
      return;
    }
    std::optional<int>& occupant = slots[{action.stage, action.replica, action.slot}];
    int& own = slot_of[static_cast<size_t>(item)];
    if (own >= 0 && own != action.slot)
      problems.push_back(
          tables.problem(place, "uses another slot than its item's first action", "keep an item in one slot"));
    else if (occupant && *occupant != item)
      problems.push_back(
          tables.problem(place, "uses a slot that another item still needs", "use more slots, or receive later"));
    own = action.slot;
    occupant = item;
    if (last[static_cast<size_t>(item)] == place.position) occupant.reset();
  });
  return problems;
}

}  // namespace graphpipe::scheduler::check
