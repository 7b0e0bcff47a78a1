#pragma once
// The items of a device's program as its memory sees them: where they end, which of them make gradients of weights,
// and what their functions take.

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "scheduler/memory/memory.h"

namespace graphpipe::scheduler {

/// Stage, replica, slot.
using SlotKey = std::tuple<int32_t, int32_t, int32_t>;
inline SlotKey slot_key(const Action& action) { return {action.stage, action.replica, action.slot}; }

/// Per action, whether it is the last of its item: nothing follows in its slot, or a new item's allocation, first
/// receive or forward.
std::vector<bool> item_ends(const std::vector<Action>& actions);

/// For which updates a device has gradients of weights: from an update's first weight gradient to the step after its
/// own, or to the end of the list.
class GradientSets {
 public:
  explicit GradientSets(const ir::Program& program);

  /// The first sample of the update that the item belongs to.
  int64_t update_of(const Action& action) const;
  /// Whether the action makes weight gradients, and its update has none yet.
  bool are_new(const Action& action) const;
  /// The same, and from now on there are.
  bool note(const Action& action);
  /// Of a reduction: whether the device has no gradients for its update, since only other replicas make some. From now
  /// on it has: the sums are of all weights.
  bool note_others(const Action& reduction) {
    return held_[replica_key(reduction)].insert(update_of(reduction)).second;
  }
  /// A step drops those of earlier updates; returns how many.
  size_t drop_before(const Action& step);

 private:
  std::map<ir::ReplicaKey, std::vector<wire::SampleRange>> updates_;
  std::map<ir::ReplicaKey, std::set<int64_t>> held_;
};

/// Of each item of a program, counted once per stage and number of samples.
class ItemMemories {
 public:
  /// `joined`: the stages whose backward is one function. Both outlive this.
  ItemMemories(const CountedItems& item, const IdSet<StageId>& joined) : item_(item), joined_(joined) {}
  const ir::ItemMemory& of(const Action& action);

 private:
  const CountedItems& item_;
  const IdSet<StageId>& joined_;
  std::map<std::pair<int32_t, int64_t>, ir::ItemMemory> items_;
};

/// Of a compute action; `is_first`: it makes the gradients of weights that later ones add to.
const ir::FunctionMemory& function_of(const ir::ItemMemory& item, ActionOp op, bool is_first);

}  // namespace graphpipe::scheduler
