#include "scheduler/policies/v_slots.h"

#include <algorithm>

namespace graphpipe::scheduler {

Schedule schedule_of_slots(const StageGraph& graph, const Chunks& chunks, std::vector<SlotAction> actions,
                           ActionOp backward, std::string_view policy) {
  std::sort(actions.begin(), actions.end());
  std::vector<std::vector<Action>> lists(static_cast<size_t>(chunks.ranks));
  for (const SlotAction& action : actions) {
    const bool first_chunk =
        action.lane == Lane::kForward0 || action.lane == Lane::kBackward0 || action.lane == Lane::kWeight0;
    const ActionOp op = is_forward(action.lane)    ? ActionOp::kForward
                        : is_backward(action.lane) ? backward
                                                   : ActionOp::kWeightGradient;
    lists[action.rank].push_back(
        chunk_action(graph, op, chunks.stages[action.rank][first_chunk ? 0 : 1], action.index));
  }
  return schedule_of_ranks(chunks, std::move(lists), policy);
}

}  // namespace graphpipe::scheduler
