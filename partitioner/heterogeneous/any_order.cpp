#include "partitioner/heterogeneous/any_order.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "partitioner/auto/planner.h"
#include "partitioner/heterogeneous/device_order.h"
#include "support/stopwatch.h"

namespace graphpipe::partitioner {
namespace {

using ir::DeviceId;
using Order = std::vector<DeviceId>;

/// A request of the same machine with its devices in another order. `order` and the request outlive it.
class Reordered {
 public:
  Reordered(const PlanRequest& request, const Order& order)
      : request_(request), order_(order), graph_(*request.graph), cluster_(*request.cluster) {
    for (size_t i = 0; i < order.size(); ++i) {
      cluster_.devices[DeviceId(i)] = request.cluster->devices[order[i]];
      if (!graph_.kind_of_device.empty()) graph_.kind_of_device[i] = request.graph->kind_of_device[order[i].index()];
    }
  }
  Reordered(const Reordered&) = delete;
  Reordered& operator=(const Reordered&) = delete;

  Result<PlanAnswer> ask(const PlannerEntry& planner, double time_limit, double known_step) const {
    PlanRequest asked = request_;
    asked.graph = &graph_;
    asked.cluster = &cluster_;
    asked.time_limit = time_limit;
    asked.known_step = known_step;
    if (request_.evaluate)
      asked.evaluate = [this](const ir::Assignment& plan) { return request_.evaluate(as_numbered(plan)); };
    if (request_.refusal)
      asked.refusal = [this](const ir::Assignment& plan) { return request_.refusal(as_numbered(plan)); };
    Result<PlanAnswer> answer = partitioner::ask(planner, asked);
    if (!answer) return answer;
    for (PlanCandidate& candidate : answer->candidates) candidate.assignment = as_numbered(candidate.assignment);
    return answer;
  }

 private:
  ir::Assignment as_numbered(ir::Assignment plan) const {
    for (ir::StageChoice& choice : plan.choice) {
      for (DeviceId& device : choice.devices) device = order_[device.index()];
      std::ranges::sort(choice.devices);
    }
    return plan;
  }

  const PlanRequest& request_;
  const Order& order_;
  ir::PlanGraph graph_;
  ir::Cluster cluster_;
};

/// The fastest first, the slowest first, and one of each in turn.
std::vector<Order> orders_of(const PlanRequest& request) {
  const Order fastest = by_speed(*request.graph, *request.cluster);
  Order slowest(fastest.rbegin(), fastest.rend()), in_turn;
  for (size_t i = 0; i < fastest.size(); ++i) in_turn.push_back(i % 2 == 0 ? fastest[i / 2] : slowest[i / 2]);
  return {fastest, slowest, in_turn};
}

}  // namespace

Result<PlanAnswer> ask_in_any_order(const PlannerEntry& planner, const PlanRequest& request) {
  if (request.manual != nullptr || planner.traits.is_exhaustive || request.cluster->levels.size() > 1 ||
      !devices_differ(*request.graph, *request.cluster))
    return ask(planner, request);
  const Stopwatch watch;
  const std::vector<Order> orders = orders_of(request);
  const auto left = [&] { return std::max(0.0, request.time_limit - watch.seconds()); };
  Result<PlanAnswer> first = Reordered(request, orders.front()).ask(planner, request.time_limit, request.known_step);
  std::optional<PlanAnswer> best;
  if (first) best = *first;
  const auto take = [&](const Order& order, const PlannerEntry& asked) {
    const double known = best ? best->candidates.front().step_seconds : request.known_step;
    Result<PlanAnswer> answer = Reordered(request, order).ask(asked, left(), known);
    if (answer) merge_answers(best, std::move(*answer));
    else if (best && answer.problems().front().code == Code::kInterrupted) best->complete = false;
  };
  for (size_t i = 1; i < orders.size(); ++i) {
    if (!planner.traits.asks_others) {
      take(orders[i], planner);
      continue;
    }
    for (const char* name : {"graphpipe", "sequential"}) take(orders[i], *find_planner(name));
  }
  if (!best) return first;
  best->search_seconds = watch.seconds();
  return std::move(*best);
}

}  // namespace graphpipe::partitioner
