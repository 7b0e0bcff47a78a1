// kFkB (GraphPipe, Algorithm 2): a stage runs as many forwards as its in-flight number asks for, then alternates k
// backwards with k forwards, then drains. In-flight numbers count samples, so that stages with different micro-batch
// sizes fit together. 1F1B is k = 1; DAPPLE's policy B doubles the warm-up; no pipelining has one item in flight.

#include <algorithm>

#include "scheduler/policies/in_flight_rules.h"
#include "scheduler/policies/list_rule.h"
#include "scheduler/policies/policies.h"
#include "scheduler/policies/raise_in_flight.h"

namespace graphpipe::scheduler {
namespace {

/// Raises warm-ups until no list deadlocks. Each round gives every starving list as many micro-batches more as the one
/// that lacks the fewest, before which nothing could move; it ends because with all forwards first no deadlock is
/// possible.
/// Example: a, with micro-batches of one sample and a warm-up of one, feeds b, with micro-batches of two. Behind F0 a
/// waits for its B0, and b for F1 of a. One forward is missing: with a warm-up of two a's list does not deadlock.
Schedule merge_raising(const StageGraph& graph, IdMap<StageId, ListRule> rules) {
  while (true) {
    StageOrders orders(graph.stages.size());
    for (const StageId stage : graph.stage_ids())
      for (size_t replica = 0; replica < graph.stages[stage].choice.devices.size(); ++replica)
        orders[stage].push_back(stage_action_list(graph, stage, static_cast<int>(replica), rules[stage]));
    MergedOrders merged = merge_orders(graph, orders);
    if (merged.starved.empty()) return std::move(merged.schedule);
    // Of several replicas one may starve alone, and all are raised.
    const bool has_replicas = std::ranges::any_of(merged.starved, [&](const MergedOrders::List& list) {
      return graph.stages[list.stage].choice.devices.size() > 1;
    });
    const int64_t fewest =
        has_replicas ? 1 : std::ranges::min_element(merged.starved, {}, &MergedOrders::List::missing)->missing;
    IdSet<StageId> raised(graph.stages.size());
    for (const MergedOrders::List& list : merged.starved)
      if (raised.insert(list.stage)) rules[list.stage].warm_up += fewest;
  }
}

/// The request's numbers, or those of the depth rule.
IdMap<StageId, Samples> given_or_depth(const PolicyRequest& request) {
  return request.in_flight.empty() ? depth_in_flight(request.graph, UseK::kNo) : request.in_flight;
}

Schedule alternate(const StageGraph& graph, const IdMap<StageId, Samples>& in_flight, UseK use_k) {
  IdMap<StageId, ListRule> rules(graph.stages.size());
  for (const StageId stage : graph.stage_ids())
    rules[stage] = {.warm_up = items_per_replica(graph, stage, in_flight[stage]),
                    .k = use_k == UseK::kYes ? graph.stages[stage].choice.k : 1};
  return merge_raising(graph, std::move(rules));
}

Result<Schedule> alternate_checked(const StageGraph& graph, const IdMap<StageId, Samples>& in_flight, UseK use_k,
                                   const char* name) {
  if (in_flight.size() != graph.stages.size())
    return Diagnostic{
        .code = Code::kBadPlan,
        .message = text("in-flight numbers for ", in_flight.size(), " stages, the plan has ", graph.stages.size()),
        .hint = "pass one number per stage"};
  Schedule schedule = alternate(graph, in_flight, use_k);
  schedule.policy = name;
  return schedule;
}

}  // namespace

Result<Schedule> one_forward_one_backward(const StageGraph& graph, const IdMap<StageId, Samples>& in_flight,
                                          const char* policy) {
  return alternate_checked(graph, in_flight, UseK::kNo, policy);
}

Result<Schedule> order_kfkb(const PolicyRequest& request) {
  if (!request.in_flight.empty()) return alternate_checked(request.graph, request.in_flight, UseK::kYes, "kfkb");
  const OrderByNumbers order = [](const StageGraph& graph, const IdMap<StageId, Samples>& numbers) {
    return alternate(graph, numbers, UseK::kYes);
  };
  const IdMap<StageId, Samples> numbers =
      raise_where_starved(request, in_flight_of(request), attainable_period(request), order);
  return alternate_checked(request.graph, numbers, UseK::kYes, "kfkb");
}

Result<Schedule> order_1f1b(const PolicyRequest& request) {
  return one_forward_one_backward(request.graph, given_or_depth(request), "1f1b");
}

Result<Schedule> order_dapple_a(const PolicyRequest& request) {
  return one_forward_one_backward(request.graph, given_or_depth(request), "dapple-a");
}

Result<Schedule> order_dapple_b(const PolicyRequest& request) {
  IdMap<StageId, Samples> numbers = given_or_depth(request);
  if (numbers.size() == request.graph.stages.size())
    for (const StageId stage : request.graph.stage_ids())
      numbers[stage] = 2 * numbers[stage] - request.graph.stages[stage].choice.micro_batch;
  return one_forward_one_backward(request.graph, numbers, "dapple-b");
}

Result<Schedule> order_none(const PolicyRequest& request) {
  IdMap<StageId, Samples> numbers;
  for (const ir::Stage& stage : request.graph.stages) numbers.push_back(stage.choice.micro_batch);
  return one_forward_one_backward(request.graph, numbers, "none");
}

}  // namespace graphpipe::scheduler
