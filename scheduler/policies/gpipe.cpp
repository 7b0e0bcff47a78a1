// GPipe: fill, then drain. The backward order is first-in-first-out in most systems and last-in-first-out where
// automatic differentiation runs the recorded work in reverse (docs/schedules.md, section 2.1); same makespan and peak.

#include <algorithm>

#include "scheduler/policies/policies.h"

namespace graphpipe::scheduler {

Result<Schedule> order_gpipe(const PolicyRequest& request) {
  const StageGraph& graph = request.graph;
  StageOrders orders(graph.stages.size());
  for (const StageId stage : graph.stage_ids()) {
    const int replicas = static_cast<int>(graph.stages[stage].choice.devices.size());
    for (int replica = 0; replica < replicas; ++replica) {
      std::vector<SampleRange> ranges = item_ranges(graph, stage, replica);
      std::vector<Action> order;
      for (const SampleRange range : ranges) order.push_back(compute_action(ActionOp::kForward, stage, replica, range));
      if (request.choices.backward_order == BackwardOrder::kLifo) std::reverse(ranges.begin(), ranges.end());
      if (graph.stages[stage].has_backward)
        for (const SampleRange range : ranges)
          order.push_back(compute_action(ActionOp::kBackward, stage, replica, range));
      orders[stage].push_back(std::move(order));
    }
  }
  Schedule schedule = merge_orders(graph, orders).schedule;
  schedule.policy = "gpipe";
  return schedule;
}

}  // namespace graphpipe::scheduler
