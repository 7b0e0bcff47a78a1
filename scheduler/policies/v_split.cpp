// V-Half and V-Min: about half and a third of the activations of 1F1B. Four first slots per rank make the block; then,
// twice, the ends are pulled together: each action of the fill and the drain moves to the earliest free slot after what
// it needs, as long as no rank holds more than before. The second time weight gradients are wherever a slot is free.
// The first slots are those of docs/schedules.md, section 2.6, for even and odd numbers of ranks alike; lists to
// compare with are published for even ones only.
//
// Example: V-Min on two ranks. Rank 0 has the first micro-batch's forwards in slots 0 and 3 and its input gradients in
// 4 and 7, rank 1 in 1, 2 and 5, 6; each micro-batch follows six slots behind the one before. So in steady state rank 0
// uses slots 0, 1, 3 and 4 of every six, and two weight gradients fill 2 and 5.

#include <algorithm>

#include "scheduler/policies/v_slots.h"

namespace graphpipe::scheduler {
namespace {

VBlock v_min_block(int64_t ranks, int64_t r) {
  const int64_t gap = ranks % 3 == 0 ? 2 : 0;
  return {r, 2 * ranks - r - 1, 2 * ranks + gap + r, 4 * ranks + gap - r - 1};
}

VBlock v_half_block(int64_t ranks, int64_t r) {
  const int64_t gap = ranks % 2 == 0 ? 3 : 0;
  return {2 * r, 3 * ranks - r - 2, 3 * ranks + gap + 2 * r - 1, 6 * ranks + gap - r - 2};
}

/// Slots of one rank: per lane, ascending by index. Weight gradients are one lane until the end.
using RankSlots = std::vector<std::vector<int64_t>>;

int64_t last_slot(const RankSlots& rank) {
  int64_t last = 0;
  for (const std::vector<int64_t>& lane : rank)
    if (!lane.empty()) last = std::max(last, lane.back());
  return last;
}

/// Lane of each slot, or -1 where the slot is free.
std::vector<int8_t> occupation(const RankSlots& rank) {
  std::vector<int8_t> lanes(static_cast<size_t>(last_slot(rank)) + 1, -1);
  for (size_t lane = 0; lane < rank.size(); ++lane)
    for (const int64_t slot : rank[lane]) lanes[static_cast<size_t>(slot)] = static_cast<int8_t>(lane);
  return lanes;
}

/// Puts a weight gradient into every free slot that finds one waiting, the rest behind the end. `by_chunk`: a lane for
/// each chunk, the second chunk's first.
void add_weights(RankSlots& rank, bool by_chunk) {
  const std::vector<int8_t> lanes = occupation(rank);
  rank.resize(kCrossRankLanes + (by_chunk ? 2 : 1));
  std::array<int64_t, 2> waiting{};
  const auto run_one = [&](size_t slot) {
    const size_t chunk = waiting[0] > 0 ? 0 : 1;
    if (waiting[chunk] == 0) return false;
    rank[kCrossRankLanes + chunk].push_back(static_cast<int64_t>(slot));
    --waiting[chunk];
    return true;
  };
  size_t slot = 0;
  for (; slot < lanes.size(); ++slot) {
    if (lanes[slot] < 0) run_one(slot);
    else if (const Lane lane = static_cast<Lane>(lanes[slot]); is_backward(lane))
      ++waiting[by_chunk && lane == Lane::kBackward0 ? 1 : 0];
  }
  while (run_one(slot)) ++slot;
}

/// Most chunks held at once, from forward to weight gradient. Without a lane for weight gradients they are taken to run
/// wherever a slot is free.
int64_t peak_of(const RankSlots& rank) {
  const bool has_weights = rank.size() > kCrossRankLanes;
  int64_t held = 0, peak = 0, waiting = 0;
  for (const int8_t slot : occupation(rank)) {
    if (slot < 0) {
      if (has_weights || waiting == 0) continue;
      --held;
      --waiting;
      continue;
    }
    const Lane lane = static_cast<Lane>(slot);
    if (is_forward(lane)) ++held;
    if (is_backward(lane)) ++waiting;
    if (is_weight(lane)) --held;
    peak = std::max(peak, held);
  }
  return peak;
}

std::vector<SlotAction> in_order(const std::vector<RankSlots>& ranks) {
  std::vector<SlotAction> actions;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (size_t lane = 0; lane < ranks[rank].size(); ++lane)
      for (size_t index = 0; index < ranks[rank][lane].size(); ++index)
        actions.push_back({ranks[rank][lane][index], rank, static_cast<Lane>(lane), static_cast<int64_t>(index)});
  std::sort(actions.begin(), actions.end());
  return actions;
}

int64_t slot_of(const std::vector<RankSlots>& ranks, size_t rank, size_t lane, int64_t index) {
  return ranks[rank][lane][static_cast<size_t>(index)];
}

/// The latest slot of what the action needs, or -1.
int64_t needed_slot(const std::vector<RankSlots>& ranks, const SlotAction& action) {
  const size_t lane = lane_index(action.lane);
  int64_t slot = action.index > 0 ? slot_of(ranks, action.rank, lane, action.index - 1) : -1;
  if (is_weight(action.lane)) {
    // The weight gradients of a rank follow its backwards of both chunks, whichever comes first.
    std::vector<int64_t> backwards = ranks[action.rank][lane_index(Lane::kBackward1)];
    const std::vector<int64_t>& others = ranks[action.rank][lane_index(Lane::kBackward0)];
    backwards.insert(backwards.end(), others.begin(), others.end());
    std::nth_element(backwards.begin(), backwards.begin() + action.index, backwards.end());
    return std::max(slot, backwards[static_cast<size_t>(action.index)]);
  }
  const size_t before = rank_before(action.lane, action.rank, ranks.size());
  if (before < ranks.size()) slot = std::max(slot, slot_of(ranks, before, lane, action.index));
  if (lane > 0) slot = std::max(slot, slot_of(ranks, action.rank, lane - 1, action.index));
  return slot;
}

/// Runs the actions of each rank in order, each as early as possible: idle slots that no dependence requires disappear.
std::vector<RankSlots> squeezed(const std::vector<RankSlots>& ranks) {
  std::vector<RankSlots> early = ranks;
  std::vector<int64_t> last(ranks.size(), -1);
  for (const SlotAction& action : in_order(ranks)) {
    int64_t slot = last[action.rank];
    if (!is_weight(action.lane)) slot = std::max(slot, needed_slot(early, action));
    last[action.rank] = slot + 1;
    early[action.rank][lane_index(action.lane)][static_cast<size_t>(action.index)] = slot + 1;
  }
  return early;
}

/// Moves the action to the first free slot that keeps its rank within `peak`, and returns its slot.
int64_t move_forward(std::vector<RankSlots>& ranks, const std::vector<char>& taken, const SlotAction& action,
                     int64_t peak) {
  int64_t& slot = ranks[action.rank][lane_index(action.lane)][static_cast<size_t>(action.index)];
  for (int64_t earlier = needed_slot(ranks, action) + 1; earlier < action.slot; ++earlier) {
    if (taken[static_cast<size_t>(earlier)]) continue;
    slot = earlier;
    if (peak_of(ranks[action.rank]) <= peak) return earlier;
  }
  return slot = action.slot;
}

/// Pulls the drain together and, where weight gradients have slots, the fill too; then squeezes. Between the first
/// micro-batch's return to rank 0 and the last one's entry nothing moves: that is the steady state.
std::vector<RankSlots> pulled_together(std::vector<RankSlots> ranks, bool with_weights) {
  if (with_weights)
    for (RankSlots& rank : ranks) add_weights(rank, false);
  int64_t peak = 0;
  std::vector<std::vector<char>> taken;
  for (const RankSlots& rank : ranks) {
    peak = std::max(peak, peak_of(rank));
    taken.emplace_back(static_cast<size_t>(last_slot(rank)) + 1, 0);
  }
  const int64_t last_index = static_cast<int64_t>(ranks[0][0].size()) - 1;
  enum class Phase : uint8_t { kFill, kSteady, kDrain } phase = Phase::kFill;
  for (const SlotAction& action : in_order(ranks)) {
    if (phase == Phase::kFill && action.rank == 0 && action.lane == Lane::kBackward0) phase = Phase::kSteady;
    const bool moves = phase == Phase::kDrain || (phase == Phase::kFill && with_weights);
    const int64_t slot = moves ? move_forward(ranks, taken[action.rank], action, peak) : action.slot;
    taken[action.rank][static_cast<size_t>(slot)] = 1;
    if (phase == Phase::kSteady && action.lane == Lane::kForward0 && action.index == last_index) phase = Phase::kDrain;
  }
  if (!with_weights)
    for (RankSlots& rank : ranks) add_weights(rank, false);
  ranks = squeezed(ranks);
  for (RankSlots& rank : ranks) rank.resize(kCrossRankLanes);
  return ranks;
}

Result<Schedule> order_v_split(const PolicyRequest& request, VBlock (*block)(int64_t, int64_t),
                               std::string_view policy) {
  GP_TRY(const Chunks chunks, chunks_of(request.graph, ir::StageShape::kV, policy));
  std::vector<RankSlots> ranks(static_cast<size_t>(chunks.ranks), RankSlots(kCrossRankLanes));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const VBlock first = block(chunks.ranks, static_cast<int64_t>(rank));
    for (size_t lane = 0; lane < kCrossRankLanes; ++lane)
      for (int64_t index = 0; index < chunks.micro_batches; ++index)
        ranks[rank][lane].push_back(first[lane] + kBlockPeriod * index);
  }
  ranks = pulled_together(pulled_together(std::move(ranks), true), false);
  for (RankSlots& rank : ranks) add_weights(rank, true);
  return schedule_of_slots(request.graph, chunks, in_order(ranks), ActionOp::kInputGradient, policy);
}

}  // namespace

Result<Schedule> order_v_half(const PolicyRequest& request) { return order_v_split(request, v_half_block, "v-half"); }
Result<Schedule> order_v_min(const PolicyRequest& request) { return order_v_split(request, v_min_block, "v-min"); }

}  // namespace graphpipe::scheduler
