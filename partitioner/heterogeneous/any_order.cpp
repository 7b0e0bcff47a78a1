#include "partitioner/heterogeneous/any_order.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cost/lower_bound.h"
#include "partitioner/auto/planner.h"
#include "partitioner/heterogeneous/device_order.h"
#include "support/stopwatch.h"

namespace graphpipe::partitioner {
namespace {

using ir::DeviceId;
using Order = std::vector<DeviceId>;

/// The machine with these devices, numbered in this order.
ir::Cluster in_order(const ir::Cluster& cluster, const Order& order) {
  ir::Cluster result = ir::first_devices(cluster, static_cast<int>(order.size()));
  for (size_t i = 0; i < order.size(); ++i) result.devices[DeviceId(i)] = cluster.devices[order[i]];
  return result;
}

/// Whether any two of the devices are as far from each other under their new numbers.
bool keeps_links(const ir::Cluster& cluster, const Order& order) {
  if (cluster.levels.size() == 1) return true;
  const ir::Cluster renumbered = in_order(cluster, order);
  for (size_t i = 0; i < order.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const ir::LinkLevel &link = renumbered.link(DeviceId(i), DeviceId(j)), &own = cluster.link(order[i], order[j]);
      if (link.bandwidth != own.bandwidth || link.latency != own.latency) return false;
    }
  return true;
}

/// A request of the same machine with its devices in another order, or with some of them. `order` and the request
/// outlive it.
class Reordered {
 public:
  Reordered(const PlanRequest& request, const Order& order)
      : request_(request), order_(order), graph_(*request.graph), cluster_(in_order(*request.cluster, order)) {
    if (graph_.kind_of_device.empty()) return;
    graph_.kind_of_device.clear();
    for (const DeviceId device : order) graph_.kind_of_device.push_back(request.graph->kind_of_device[device.index()]);
    if (order.size() == request.cluster->devices.size()) return;
    // Searches go by one price of each node: that of the slowest kind that there is, as in the whole graph.
    take_prices_of(graph_, graph_.kind_of_device[by_speed(graph_, cluster_).back().index()]);
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

/// The fastest first, the slowest first, and one of each in turn; as numbered where none of these keeps the links.
std::vector<Order> orders_of(const PlanRequest& request) {
  const Order fastest = by_speed(*request.graph, *request.cluster);
  Order slowest(fastest.rbegin(), fastest.rend()), in_turn;
  for (size_t i = 0; i < fastest.size(); ++i) in_turn.push_back(i % 2 == 0 ? fastest[i / 2] : slowest[i / 2]);
  std::vector<Order> orders;
  for (const Order& order : {fastest, slowest, in_turn})
    if (keeps_links(*request.cluster, order)) orders.push_back(order);
  if (!orders.empty()) return orders;
  Order numbered = fastest;
  std::ranges::sort(numbered);
  return {numbered};
}

/// The devices of each class, and of the fastest two and more, but not all.
std::vector<Order> devices_of_classes(const PlanRequest& request) {
  const std::vector<int> class_of = device_classes(*request.graph, *request.cluster);
  std::vector<Order> alone, fastest;
  std::vector<int> seen;
  for (const DeviceId device : by_speed(*request.graph, *request.cluster)) {
    const int own = class_of[device.index()];
    const auto known = std::ranges::find(seen, own) - seen.begin();
    if (known == std::ssize(seen)) {
      fastest.push_back(fastest.empty() ? Order() : fastest.back());
      seen.push_back(own);
      alone.emplace_back();
    }
    alone[static_cast<size_t>(known)].push_back(device);
    fastest.back().push_back(device);
  }
  if (alone.size() < 2) return {};
  alone.insert(alone.end(), fastest.begin() + 1, fastest.end() - 1);
  return alone;
}

}  // namespace

std::vector<PlanAnswer> ask_on_classes(const PlannerEntry& planner, const PlanRequest& request) {
  std::vector<PlanAnswer> answers;
  if (!devices_differ(*request.graph, *request.cluster)) return answers;
  const Stopwatch watch;
  const double bound = cost::plan_bound(*request.graph, *request.cluster).time_per_sample();
  double known = request.known_step;
  for (Order devices : devices_of_classes(request)) {
    std::ranges::sort(devices);
    if (!keeps_links(*request.cluster, devices)) continue;
    const double left = std::max(0.0, request.time_limit - watch.seconds());
    Result<PlanAnswer> answer = Reordered(request, devices).ask(planner, left, known);
    if (!answer) continue;  // too few devices for what is asked, or no plan that is shorter
    known = std::min(known, answer->candidates.front().step_seconds);
    answer->bound = std::min(answer->bound, bound);  // what others could do on all devices
    answers.push_back(std::move(*answer));
  }
  return answers;
}

Result<PlanAnswer> ask_in_any_order(const PlannerEntry& planner, const PlanRequest& request) {
  if (request.manual != nullptr || planner.traits.is_exhaustive || !devices_differ(*request.graph, *request.cluster))
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
  // `auto` asks others for classes of devices; originals, and planners that are to use all devices, leave none out.
  if (!planner.traits.asks_others && !planner.traits.uses_all_devices && planner.search == nullptr) {
    PlanRequest rest = request;
    rest.time_limit = left();
    if (best) rest.known_step = best->candidates.front().step_seconds;
    for (PlanAnswer& answer : ask_on_classes(planner, rest)) merge_answers(best, std::move(answer));
  }
  if (!best) return first;
  best->search_seconds = watch.seconds();
  return std::move(*best);
}

}  // namespace graphpipe::partitioner
