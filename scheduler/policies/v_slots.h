#pragma once
// V schedules with controllable memory (Qi et al., "Pipeline Parallelism with Controllable Memory"): a block of slots
// for one micro-batch is repeated every six slots, and the schedule is then compacted at both ends without raising the
// memory peak. Internal to the policies v-half, v-min and v-1f1b.

#include <array>

#include "scheduler/policies/chunks.h"

namespace graphpipe::scheduler {

/// Slots from one micro-batch to the next: what a rank does for one micro-batch with two chunks, F, I and W each.
inline constexpr int64_t kBlockPeriod = 6;

/// The actions of a rank by direction: forwards of the first chunk go down the ranks, those of the second chunk back
/// up; backwards of the second chunk go down, those of the first back up. Weight gradients do not cross ranks.
enum class Lane : uint8_t { kForward0, kForward1, kBackward1, kBackward0, kWeight1, kWeight0 };
inline constexpr size_t kCrossRankLanes = 4;

/// First slot on one rank of each lane that crosses ranks.
using VBlock = std::array<int64_t, kCrossRankLanes>;

/// One action: the index-th of its lane on its rank.
struct SlotAction {
  int64_t slot = 0;
  size_t rank = 0;
  Lane lane = Lane::kForward0;
  int64_t index = 0;
  auto operator<=>(const SlotAction&) const = default;
};

constexpr size_t lane_index(Lane lane) { return static_cast<size_t>(lane); }
constexpr bool is_forward(Lane lane) { return lane <= Lane::kForward1; }
constexpr bool is_backward(Lane lane) { return lane == Lane::kBackward1 || lane == Lane::kBackward0; }
constexpr bool is_weight(Lane lane) { return lane >= Lane::kWeight1; }
/// Whether the lane goes from rank 0 to the last rank.
constexpr bool goes_down(Lane lane) { return lane == Lane::kForward0 || lane == Lane::kBackward1; }

/// The neighbour whose action of the same lane and index comes before, or `ranks` where the lane enters here.
constexpr size_t rank_before(Lane lane, size_t rank, size_t ranks) {
  if (goes_down(lane)) return rank == 0 ? ranks : rank - 1;
  return rank + 1;
}

/// Turns slots into lists. `backward` is the op of the backward lanes: kInputGradient or kBackward.
Schedule schedule_of_slots(const StageGraph& graph, const Chunks& chunks, std::vector<SlotAction> actions,
                           ActionOp backward, std::string_view policy);

}  // namespace graphpipe::scheduler
