#include "partitioner/heterogeneous/any_order.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "cost/lower_bound.h"
#include "partitioner/auto/planner.h"
#include "partitioner/candidates.h"
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

/// Whether any two of the devices are as far from each other under their new numbers: whether they share the groups of
/// every level under both.
bool keeps_links(const ir::Cluster& cluster, const Order& order) {
  for (const ir::LinkLevel& level : cluster.levels) {
    const auto group = static_cast<size_t>(level.group);
    std::map<size_t, size_t> old_of, new_of;
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t now = i / group, before = order[i].index() / group;
      if (old_of.emplace(now, before).first->second != before || new_of.emplace(before, now).first->second != now)
        return false;
    }
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
  /// No plan has a shorter step.
  double min_step() const {
    PlanRequest asked = request_;
    asked.graph = &graph_;
    return min_step_of_plans(asked, cluster_);
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

/// The devices of each kind, and of the fastest two kinds and more, but not all; ascending. Kinds differ in speed, not
/// in memory alone.
std::vector<Order> devices_of_kinds(const PlanRequest& request) {
  std::vector<int> kinds;
  std::vector<Order> alone, fastest;
  for (const DeviceId device : by_speed(*request.graph, *request.cluster)) {
    const auto& kind_of = request.graph->kind_of_device;
    const int kind = device.index() < kind_of.size() ? kind_of[device.index()] : 0;
    const auto known = std::ranges::find(kinds, kind) - kinds.begin();
    if (known == std::ssize(kinds)) {
      kinds.push_back(kind);
      alone.emplace_back();
      fastest.push_back(fastest.empty() ? Order() : fastest.back());
    }
    alone[static_cast<size_t>(known)].push_back(device);
    fastest.back().push_back(device);
  }
  if (alone.size() < 2) return {};
  alone.insert(alone.end(), fastest.begin() + 1, fastest.end() - 1);
  for (Order& devices : alone) std::ranges::sort(devices);
  return alone;
}

/// The planner, or those that it asks; with a replica of one stage on every device the order does not matter.
std::vector<const PlannerEntry*> asked_in_each_order(const PlannerEntry& planner) {
  if (!planner.traits.asks_others) return {&planner};
  std::vector<const PlannerEntry*> asked;
  for (const PlannerEntry& each : planners())
    if (each.asked != AskedByAuto::kNever && !each.traits.is_one_stage) asked.push_back(&each);
  return asked;
}

}  // namespace

AnswersOfKinds ask_on_kinds(const PlannerEntry& planner, const PlanRequest& request) {
  AnswersOfKinds found;
  const Stopwatch watch;
  const double bound = cost::plan_bound(*request.graph, *request.cluster).time_per_sample();
  double known = request.known_step;
  for (const Order& devices : devices_of_kinds(request)) {
    if (!keeps_links(*request.cluster, devices)) continue;
    const Reordered part(request, devices);
    if (part.min_step() >= known) continue;
    Result<PlanAnswer> answer = part.ask(planner, std::max(0.0, request.time_limit - watch.seconds()), known);
    if (!answer) {  // too few devices for what is asked, no plan that is shorter, or no time
      found.complete = found.complete && answer.problems().front().code != Code::kInterrupted;
      continue;
    }
    known = std::min(known, answer->candidates.front().step_seconds);
    answer->bound = std::min(answer->bound, bound);  // what others could do on all devices
    found.answers.push_back(std::move(*answer));
  }
  return found;
}

Result<PlanAnswer> ask_on_fastest(const PlannerEntry& planner, const PlanRequest& request, size_t count) {
  Order devices = by_speed(*request.graph, *request.cluster);
  devices.resize(std::min(count, devices.size()));
  std::ranges::sort(devices);
  return Reordered(request, devices).ask(planner, request.time_limit, request.known_step);
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
  // Of `auto`, those that it asks, so that none of them alone has a better plan; whole, it would take as long in each.
  for (size_t i = 1; i < orders.size(); ++i)
    for (const PlannerEntry* each : asked_in_each_order(planner)) take(orders[i], *each);
  // `auto` asks others for kinds of devices; originals, and planners that are to use all devices, leave none out.
  if (!planner.traits.asks_others && !planner.traits.uses_all_devices && planner.search == nullptr) {
    PlanRequest rest = request;
    rest.time_limit = left();
    if (best) rest.known_step = best->candidates.front().step_seconds;
    AnswersOfKinds of_kinds = ask_on_kinds(planner, rest);
    for (PlanAnswer& answer : of_kinds.answers) merge_answers(best, std::move(answer));
    if (best) best->complete = best->complete && of_kinds.complete;
  }
  if (!best) return first;
  best->search_seconds = watch.seconds();
  return std::move(*best);
}

}  // namespace graphpipe::partitioner
