// Zero bubble on a stage graph: ZB-1P and ZB-2P with two numbers per stage, the warm-up n(s) and the lag of the weight
// gradients D - n(s), with D the largest in-flight number. On chains ZB-1P is the published schedule; on other graphs
// with equal costs it meets the lower bound, with D items held everywhere.

#include <algorithm>

#include "scheduler/policies/in_flight_rules.h"
#include "scheduler/policies/list_rule.h"

namespace graphpipe::scheduler {
namespace {

Result<Schedule> order_zero_bubble(const PolicyRequest& request, int64_t factor, const char* name) {
  const StageGraph& graph = request.graph;
  const IdMap<StageId, Samples> numbers =
      request.in_flight.empty() ? depth_in_flight(graph, UseK::kNo) : request.in_flight;
  if (numbers.size() != graph.stages.size())
    return Diagnostic{
        .code = Code::kBadPlan,
        .message = text("in-flight numbers for ", numbers.size(), " stages, the plan has ", graph.stages.size()),
        .hint = "pass one number per stage"};
  Samples deepest;
  for (const Samples number : numbers) deepest = std::max(deepest, number);
  StageOrders orders(graph.stages.size());
  for (const StageId stage : graph.stage_ids()) {
    const int64_t items = items_per_replica(graph, stage, numbers[stage]);
    const ListRule rule{.warm_up = factor * items - (factor - 1),
                        .split = true,
                        .weight_lag = factor * (items_per_replica(graph, stage, deepest) - items)};
    for (size_t replica = 0; replica < graph.stages[stage].choice.devices.size(); ++replica)
      orders[stage].push_back(stage_action_list(graph, stage, static_cast<int>(replica), rule));
  }
  MergedOrders merged = merge_orders(graph, orders);
  if (!merged.starved.empty())
    return Diagnostic{.code = Code::kBadPlan,
                      .message = text(name, ": stage ", merged.starved.front().stage,
                                      " has too few samples in flight for the stages that it feeds"),
                      .hint = "use equal micro-batch sizes, or pass larger in-flight numbers"};
  merged.schedule.policy = name;
  return std::move(merged.schedule);
}

}  // namespace

Result<Schedule> order_zb_1p(const PolicyRequest& request) { return order_zero_bubble(request, 1, "zb-1p"); }
Result<Schedule> order_zb_2p(const PolicyRequest& request) { return order_zero_bubble(request, 2, "zb-2p"); }

}  // namespace graphpipe::scheduler
