#include "scheduler/lowering/assign_slots.h"

#include <algorithm>

namespace graphpipe::scheduler {
namespace {

/// Positions of an item's first and last action in its device's list.
struct Life {
  size_t first = SIZE_MAX;
  size_t last = 0;
};

std::vector<Life> lives_of(const ItemTable& items, const ItemLists& lists) {
  std::vector<Life> lives(items.size());
  for (const std::vector<ItemIndex>& list : lists)
    for (size_t position = 0; position < list.size(); ++position) {
      if (list[position] < 0) continue;
      Life& life = lives[static_cast<size_t>(list[position])];
      life.first = std::min(life.first, position);
      life.last = std::max(life.last, position);
    }
  return lives;
}

/// Most items of [first, last) that are alive at once.
int max_alive(const std::vector<Life>& lives, ItemIndex first, ItemIndex last) {
  std::vector<std::pair<size_t, int>> changes;
  for (ItemIndex item = first; item < last; ++item) {
    changes.push_back({lives[static_cast<size_t>(item)].first, 1});
    changes.push_back({lives[static_cast<size_t>(item)].last + 1, -1});
  }
  std::sort(changes.begin(), changes.end());
  int alive = 0, peak = 0;
  for (const auto& [position, change] : changes) peak = std::max(peak, alive += change);
  return peak;
}

/// Whether items that share a slot of the ring live one after the other, in their own order.
bool ring_fits(const std::vector<Life>& lives, ItemIndex first, ItemIndex last, int ring) {
  for (ItemIndex item = first + ring; item < last; ++item)
    if (lives[static_cast<size_t>(item - ring)].last >= lives[static_cast<size_t>(item)].first) return false;
  return true;
}

}  // namespace

void assign_slots(const ItemTable& items, const ItemLists& lists, Schedule& schedule) {
  const std::vector<Life> lives = lives_of(items, lists);
  const size_t stages = items.stage_count();
  schedule.slots.resize(stages, 1);
  std::vector<int> slot_of(items.size(), 0);
  for (const StageId stage : ids<StageId>(stages)) {
    int ring = 1;
    for (int replica = 0; replica < items.replica_count(stage); ++replica) {
      const auto [first, last] = items.of(stage, replica);
      ring = std::max(ring, max_alive(lives, first, last));
    }
    const auto fits = [&] {
      for (int replica = 0; replica < items.replica_count(stage); ++replica)
        if (const auto [first, last] = items.of(stage, replica); !ring_fits(lives, first, last, ring)) return false;
      return true;
    };
    // Ends at the number of items at the latest. More than one round only where items do not end in their own order.
    while (!fits()) ++ring;
    schedule.slots[stage] = ring;
    for (int replica = 0; replica < items.replica_count(stage); ++replica) {
      const auto [first, last] = items.of(stage, replica);
      for (ItemIndex item = first; item < last; ++item) slot_of[static_cast<size_t>(item)] = (item - first) % ring;
    }
  }
  for (size_t program = 0; program < lists.size(); ++program)
    for (size_t position = 0; position < lists[program].size(); ++position)
      if (const ItemIndex item = lists[program][position]; item >= 0)
        schedule.programs[program].actions[position].slot = slot_of[static_cast<size_t>(item)];
}

}  // namespace graphpipe::scheduler
