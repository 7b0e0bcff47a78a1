// 1F1B-V: a V with whole backwards, two thirds of the activations of 1F1B. The block leaves gaps of three slots where
// the six-slot period asks for them; one pass over all slots then moves forwards and backwards earlier, forwards only
// as far as the rank's memory stays below the peak of the plain repetition.

#include <algorithm>

#include "scheduler/policies/v_slots.h"

namespace graphpipe::scheduler {
namespace {

/// First slots of all ranks; a backward takes its slot and the next.
std::vector<VBlock> first_slots(int64_t ranks) {
  std::vector<VBlock> blocks(static_cast<size_t>(ranks));
  int64_t slot = kBlockPeriod + 1;
  for (int64_t r = 0; r < ranks; ++r) blocks[static_cast<size_t>(r)][lane_index(Lane::kForward0)] = slot++;
  for (int64_t r = ranks; r-- > 0;) blocks[static_cast<size_t>(r)][lane_index(Lane::kForward1)] = slot++;
  if (ranks % 3 == 0) slot += 3;
  int64_t since_gap = (3 - (ranks + 2) % 3) % 3;
  const auto place_backward = [&](int64_t rank, Lane lane) {
    blocks[static_cast<size_t>(rank)][lane_index(lane)] = slot;
    slot += 2;
    if (++since_gap < 3) return;
    since_gap = 0;
    slot += 3;
  };
  for (int64_t r = 0; r < ranks; ++r) place_backward(r, Lane::kBackward1);
  for (int64_t r = ranks; r-- > 0;) place_backward(r, Lane::kBackward0);
  return blocks;
}

/// Moves each action, in the order of the slots, to the earliest free slot after what it needs; a forward only as far
/// as its rank stays within the peak.
/// Example: two ranks. Rank 0 has the first micro-batch's forwards in slots 7 and 10 and its backwards in 11 and 20,
/// rank 1 in 8, 9 and 16, 18; they move to 0, 3 and 4, 10 on rank 0, to 1, 2 and 6, 8 on rank 1.
class Tightener {
 public:
  Tightener(int64_t ranks, int64_t micro_batches) {
    const std::vector<VBlock> blocks = first_slots(ranks);
    for (size_t rank = 0; rank < blocks.size(); ++rank)
      for (size_t lane = 0; lane < kCrossRankLanes; ++lane)
        for (int64_t index = 0; index < micro_batches; ++index)
          actions_.push_back({blocks[rank][lane] + kBlockPeriod * index, rank, static_cast<Lane>(lane), index});
    std::sort(actions_.begin(), actions_.end());
    const size_t length = static_cast<size_t>(actions_.back().slot) + 2;
    taken_.assign(blocks.size(), std::vector<char>(length, 0));
    held_.assign(blocks.size(), std::vector<int64_t>(length, 0));
    slots_.resize(blocks.size());
    for (auto& lanes : slots_)
      for (std::vector<int64_t>& lane : lanes) lane.assign(static_cast<size_t>(micro_batches), -1);
    for (const SlotAction& action : actions_) {
      taken_[action.rank][static_cast<size_t>(action.slot)] = 1;
      if (is_backward(action.lane)) taken_[action.rank][static_cast<size_t>(action.slot) + 1] = 1;
      // What a forward begins to hold its weight gradient gives back, one slot after the backward.
      if (is_forward(action.lane)) add(action.rank, action.slot, static_cast<int64_t>(length), 1);
      else add(action.rank, action.slot + 1, static_cast<int64_t>(length), -1);
    }
    for (const std::vector<int64_t>& held : held_) peak_ = std::max(peak_, *std::max_element(held.begin(), held.end()));
  }

  std::vector<SlotAction> run() {
    for (SlotAction& action : actions_) {
      const int64_t slot = is_forward(action.lane) ? forward_slot(action) : backward_slot(action);
      if (slot < action.slot) move(action, slot);
      slots_[action.rank][lane_index(action.lane)][static_cast<size_t>(action.index)] = slot;
    }
    return std::move(actions_);
  }

 private:
  void add(size_t rank, int64_t first, int64_t last, int64_t change) {
    for (int64_t slot = first; slot < last; ++slot) held_[rank][static_cast<size_t>(slot)] += change;
  }
  bool is_free(size_t rank, int64_t slot) const { return taken_[rank][static_cast<size_t>(slot)] == 0; }
  int64_t slot_of(size_t rank, Lane lane, int64_t index) const {
    return slots_[rank][lane_index(lane)][static_cast<size_t>(index)];
  }

  /// The last slot of what the action needs, or -1.
  int64_t needed_slot(const SlotAction& action) const {
    const int64_t before = action.index > 0 ? slot_of(action.rank, action.lane, action.index - 1) : -1;
    const int64_t length = is_backward(action.lane) ? 2 : 1;
    const size_t rank = rank_before(action.lane, action.rank, slots_.size());
    if (rank < slots_.size()) return std::max(before, slot_of(rank, action.lane, action.index) + length - 1);
    if (action.lane == Lane::kForward0) return before;
    const Lane turned = static_cast<Lane>(lane_index(action.lane) - 1);
    return std::max(before, slot_of(action.rank, turned, action.index) + (is_backward(turned) ? 1 : 0));
  }

  int64_t backward_slot(const SlotAction& action) const {
    int64_t slot = needed_slot(action) + 1;
    while (slot < action.slot && !(is_free(action.rank, slot) && is_free(action.rank, slot + 1))) ++slot;
    return slot;
  }

  int64_t forward_slot(const SlotAction& action) const {
    int64_t earliest = needed_slot(action) + 1;
    while (earliest < action.slot && !is_free(action.rank, earliest)) ++earliest;
    int64_t slot = action.slot;
    while (slot > earliest && held_[action.rank][static_cast<size_t>(slot) - 1] < peak_) --slot;
    while (slot < action.slot && !is_free(action.rank, slot)) ++slot;
    return slot;
  }

  void move(SlotAction& action, int64_t slot) {
    const int64_t length = is_backward(action.lane) ? 2 : 1;
    for (int64_t i = 0; i < length; ++i) taken_[action.rank][static_cast<size_t>(action.slot + i)] = 0;
    for (int64_t i = 0; i < length; ++i) taken_[action.rank][static_cast<size_t>(slot + i)] = 1;
    if (is_forward(action.lane)) add(action.rank, slot, action.slot, 1);
    else add(action.rank, slot + 1, action.slot + 1, -1);
    action.slot = slot;
  }

  std::vector<SlotAction> actions_;
  /// Per rank, per slot: whether it is in use, and the chunks held after it.
  std::vector<std::vector<char>> taken_;
  std::vector<std::vector<int64_t>> held_;
  /// Per rank and lane: the slots of the actions that have been placed.
  std::vector<std::array<std::vector<int64_t>, kCrossRankLanes>> slots_;
  int64_t peak_ = 0;
};

}  // namespace

Result<Schedule> order_v_1f1b(const PolicyRequest& request) {
  GP_TRY(const Chunks chunks, chunks_of(request.graph, ir::StageShape::kV, "v-1f1b"));
  return schedule_of_slots(request.graph, chunks, Tightener(chunks.ranks, chunks.micro_batches).run(),
                           ActionOp::kBackward, "v-1f1b");
}

}  // namespace graphpipe::scheduler
