#include "scheduler/policies/list_rule.h"

#include <algorithm>

namespace graphpipe::scheduler {

std::vector<Action> action_list(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                                const ListRule& rule) {
  std::vector<Action> list;
  list.reserve(forwards.size() + (rule.split ? 2 : 1) * backwards.size());
  size_t next_forward = 0, next_backward = 0, next_weight = 0;
  const auto run_forwards = [&](int64_t count) {
    for (; count > 0 && next_forward < forwards.size(); --count) list.push_back(forwards[next_forward++]);
  };
  const auto run_weight = [&] {
    list.push_back(backwards[next_weight++]);
    list.back().op = ActionOp::kWeightGradient;
  };
  run_forwards(backwards.empty() ? static_cast<int64_t>(forwards.size()) : std::max<int64_t>(1, rule.warm_up));
  while (next_backward < backwards.size()) {
    // Never more backwards than forwards have run: with few forwards before them a round of k may be cut short.
    const size_t max_backwards = std::min(backwards.size(), next_forward);
    for (int64_t count = 0; count < rule.k && next_backward < max_backwards; ++count) {
      list.push_back(backwards[next_backward++]);
      if (!rule.split) continue;
      list.back().op = ActionOp::kInputGradient;
      if (static_cast<int64_t>(next_backward - next_weight) > rule.weight_lag) run_weight();
    }
    run_forwards(rule.k);
  }
  while (rule.split && next_weight < backwards.size()) run_weight();
  return list;
}

std::vector<Action> stage_action_list(const StageGraph& graph, StageId stage, int replica, const ListRule& rule) {
  std::vector<Action> forwards, backwards;
  const std::vector<SampleRange> ranges = item_ranges(graph, stage, replica);
  forwards.reserve(ranges.size());
  backwards.reserve(ranges.size());
  for (const SampleRange range : ranges) {
    forwards.push_back(compute_action(ActionOp::kForward, stage, replica, range));
    if (graph.stages[stage].has_backward)
      backwards.push_back(compute_action(ActionOp::kBackward, stage, replica, range));
  }
  return action_list(forwards, backwards, rule);
}

}  // namespace graphpipe::scheduler
