#include "scheduler/simulate/relaxed_times.h"

#include <algorithm>

#include "cost/update_time.h"
#include "scheduler/lowering/insert_transfers.h"

namespace graphpipe::scheduler {
namespace {

ir::DeviceId device_of(const StageGraph& graph, const Item& item) {
  return graph.stages[item.stage].choice.devices[static_cast<size_t>(item.replica)];
}

}  // namespace

RelaxedTimes::RelaxedTimes(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& compute,
                           double ticks_per_second)
    : group_of_(reduction_groups(graph)) {
  const ItemTable items(graph, compute);
  add_nodes(graph, cluster, compute, items, ticks_per_second);
  add_edges(graph, cluster, items, ticks_per_second);
  add_ends(graph, cluster, compute, ticks_per_second);
  runs_.resize(lists_.size());
}

void RelaxedTimes::add_nodes(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& compute,
                             const ItemTable& items, double ticks_per_second) {
  Durations durations(graph, ticks_per_second, cluster.runtime.action);
  forward_of_.assign(items.size(), -1);
  backward_of_.assign(items.size(), -1);
  for (const ir::Program& program : compute.programs) {
    std::vector<NodeIndex>& list = lists_.emplace_back();
    for (const Action& action : program.actions) {
      const StageId stage(static_cast<size_t>(action.stage));
      const auto item = static_cast<size_t>(items.containing(stage, action.replica, action.range));
      const auto index = static_cast<NodeIndex>(nodes_.size());
      Node node{.length = durations.of(action),
                .program = static_cast<int32_t>(lists_.size() - 1),
                .group = group_of_[stage],
                .overlaps_next = action.overlaps_next};
      if (action.op == ActionOp::kForward) forward_of_[item] = index;
      if (ir::makes_input_gradient(action.op)) {
        backward_of_[item] = index;
        Action again = action;
        again.op = ActionOp::kRecompute;
        if (graph.stages[stage].choice.recompute) node.recompute = durations.of(again);
      }
      nodes_.push_back(node);
      list.push_back(index);
    }
  }
}

void RelaxedTimes::add_edges(const StageGraph& graph, const ir::Cluster& cluster, const ItemTable& items,
                             double ticks_per_second) {
  struct Flow {
    NodeIndex from;
    Edge edge;
  };
  std::vector<Flow> flows;
  DataFlow flow(graph, items);
  const auto add = [&](const Message& message) {
    const std::vector<NodeIndex>& nodes = message.backward ? backward_of_ : forward_of_;
    const NodeIndex from = nodes[static_cast<size_t>(message.from)], to = nodes[static_cast<size_t>(message.to)];
    if (from < 0 || to < 0) return;
    const ir::DeviceId sender = device_of(graph, items[message.from]), receiver = device_of(graph, items[message.to]);
    Ticks delay;
    if (sender != receiver) {
      const ir::StageEdge& edge = graph.edges[message.edge];
      const double bytes = (message.backward ? edge.gradient_bytes : edge.bytes).at(Samples(message.range.size()));
      const ir::LinkLevel& level = cluster.link(sender, receiver);
      delay = to_ticks(Seconds(bytes / level.bandwidth.count), ticks_per_second) +
              to_ticks(level.latency, ticks_per_second);
    }
    flows.push_back({from, {to, delay}});
    ++nodes_[static_cast<size_t>(to)].needs;
  };
  for (size_t i = 0; i < items.size(); ++i)
    for (const ActionOp op : {ActionOp::kForward, ActionOp::kBackward})
      for (const Message& message : flow.finish(static_cast<ItemIndex>(i), op)) add(message);
  std::ranges::stable_sort(flows, {}, &Flow::from);
  size_t next = 0;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    nodes_[node].first_edge = static_cast<int32_t>(next);
    for (; next < flows.size() && static_cast<size_t>(flows[next].from) == node; ++next)
      edges_.push_back(flows[next].edge);
  }
}

void RelaxedTimes::add_ends(const StageGraph& graph, const ir::Cluster& cluster, const Schedule& compute,
                            double ticks_per_second) {
  reduction_lengths_ = reduction_lengths(graph, cluster, group_of_, ticks_per_second);
  const Ticks begin = to_ticks(cluster.runtime.step, ticks_per_second);
  for (size_t p = 0; p < compute.programs.size(); ++p) {
    begins_.push_back(p < compute.starts.size() ? std::max(begin, compute.starts[p]) : begin);
    IdSet<StageId> stages;
    Ticks updates;
    std::vector<int32_t>& groups = groups_.emplace_back();
    for (const Action& action : compute.programs[p].actions) {
      const StageId stage(static_cast<size_t>(action.stage));
      if (!stages.insert(stage) || !graph.stages[stage].is_trained()) continue;
      const cost::UpdateWork work = cost::update_work(graph.stages[stage]);
      updates += to_ticks(cost::update_time(work, cluster, compute.programs[p].device), ticks_per_second);
      if (const int group = group_of_[stage]; group >= 0 && std::ranges::find(groups, group) == groups.end())
        groups.push_back(group);
    }
    updates_.push_back(updates);
  }
}

void RelaxedTimes::rotate(size_t program, size_t first, size_t middle, size_t last) {
  const auto begin = lists_[program].begin();
  std::rotate(begin + static_cast<ptrdiff_t>(first), begin + static_cast<ptrdiff_t>(middle),
              begin + static_cast<ptrdiff_t>(last));
}

void RelaxedTimes::finish(NodeIndex index, Ticks end) {
  const Node& node = nodes_[static_cast<size_t>(index)];
  ends_ += end;
  if (node.group >= 0) {
    Ticks& contributed = contributed_[static_cast<size_t>(node.group)];
    contributed = std::max(contributed, end);
  }
  const bool is_last = static_cast<size_t>(index) + 1 == nodes_.size();
  const auto last_edge =
      is_last ? edges_.size() : static_cast<size_t>(nodes_[static_cast<size_t>(index) + 1].first_edge);
  for (auto at = static_cast<size_t>(node.first_edge); at < last_edge; ++at) {
    const Edge& edge = edges_[at];
    Ticks& ready = ready_[static_cast<size_t>(edge.to)];
    ready = std::max(ready, end + edge.delay);
    if (--missing_[static_cast<size_t>(edge.to)] == 0)
      woken_.push_back(static_cast<size_t>(nodes_[static_cast<size_t>(edge.to)].program));
  }
}

/// Runs the program up to an action whose data are not there. It is asked again when some have come.
void RelaxedTimes::advance(size_t program) {
  Run& run = runs_[program];
  const std::vector<NodeIndex>& list = lists_[program];
  while (run.next < list.size()) {
    const NodeIndex first = list[run.next];
    const bool is_pair = nodes_[static_cast<size_t>(first)].overlaps_next;
    const NodeIndex second = is_pair ? list[run.next + 1] : first;
    if (missing_[static_cast<size_t>(first)] > 0 || missing_[static_cast<size_t>(second)] > 0) return;
    // The backward of a pair is recomputed before both.
    const Ticks start = std::max({run.free + nodes_[static_cast<size_t>(second)].recompute,
                                  ready_[static_cast<size_t>(first)], ready_[static_cast<size_t>(second)]});
    run.free = start + nodes_[static_cast<size_t>(first)].length;
    finish(first, run.free);
    if (is_pair) {
      run.free += nodes_[static_cast<size_t>(second)].length;
      finish(second, run.free);
    }
    run.next += is_pair ? 2 : 1;
  }
}

std::optional<RelaxedTimes::Score> RelaxedTimes::score() {
  ready_.assign(nodes_.size(), Ticks(0));
  contributed_.assign(reduction_lengths_.size(), Ticks(0));
  missing_.resize(nodes_.size());
  for (size_t node = 0; node < nodes_.size(); ++node) missing_[node] = nodes_[node].needs;
  ends_ = Ticks(0);
  woken_.clear();
  for (size_t p = 0; p < runs_.size(); ++p) {
    runs_[p] = {.next = 0, .free = begins_[p]};
    woken_.push_back(p);
  }
  while (!woken_.empty()) {
    const size_t program = woken_.back();
    woken_.pop_back();
    advance(program);
  }
  Score score{.makespan = Ticks(0), .ends = ends_};
  for (size_t p = 0; p < runs_.size(); ++p) {
    if (runs_[p].next < lists_[p].size()) return std::nullopt;
    Ticks end = runs_[p].free;
    for (const int32_t group : groups_[p])
      end = std::max(end, contributed_[static_cast<size_t>(group)] + reduction_lengths_[static_cast<size_t>(group)]);
    score.makespan = std::max(score.makespan, end + updates_[p]);
  }
  return score;
}

}  // namespace graphpipe::scheduler
