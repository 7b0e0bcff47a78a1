#include "cost/cycle_period.h"

#include <algorithm>

namespace graphpipe::cost {
namespace {

using ir::StageId;

/// Waiting: `to` of micro-batch m + span starts after `from` of micro-batch m has taken its time.
struct Wait {
  size_t from = 0, to = 0;
  double seconds = 0;
  double span = 0;
  /// For the wait of a stage's forward for its own backward: the stage, whose number is the span.
  StageId turns_at;
};

size_t forward_of(StageId stage) { return 2 * stage.index(); }
size_t backward_of(StageId stage) { return 2 * stage.index() + 1; }

/// All numbers are whole micro-batches: n forwards, then {B, F}.
std::vector<Wait> waits_of(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs,
                           const IdMap<StageId, Samples>& samples) {
  std::vector<Wait> waits;
  for (const StageId stage : graph.stage_ids()) {
    const StageCost& cost = costs[stage];
    const double n = static_cast<double>(samples[stage].count / graph.stages[stage].choice.micro_batch.count);
    waits.push_back({backward_of(stage), forward_of(stage), cost.backward(), n, stage});
    waits.push_back({forward_of(stage), backward_of(stage), cost.forward, 1 - n, {}});
    waits.push_back({forward_of(stage), forward_of(stage), cost.item(), 1, {}});
  }
  for (const ir::StageEdge& edge : graph.edges) {
    const StageCost& above = costs[edge.from];
    waits.push_back({forward_of(edge.from), forward_of(edge.to), above.forward + above.hop_down, 0, {}});
    if (edge.carries_gradient())
      waits.push_back({backward_of(edge.to), backward_of(edge.from), costs[edge.to].backward() + above.hop_up, 0, {}});
  }
  return waits;
}

/// Whether the wait moves the start of its node beyond what was known: by the time that it takes beyond its share.
bool delays(const Wait& wait, double period, std::vector<double>& latest) {
  const double slack = 1e-9 * period;
  const double time = latest[wait.from] + wait.seconds - period * wait.span - slack;
  if (time <= latest[wait.to]) return false;
  latest[wait.to] = time;
  return true;
}

/// In the order in which a micro-batch takes the waits: down the stages and up again. Starts then settle in a round or
/// few, where the order of stages would need a round per stage on the way up.
std::vector<Wait> in_order_of_flow(std::vector<Wait> waits, size_t nodes) {
  std::ranges::stable_sort(waits, {},
                           [&](const Wait& wait) { return wait.from % 2 == 0 ? wait.from : 2 * nodes - wait.from; });
  return waits;
}

/// The cycle in which each node's start was moved last by the wait `by` it; empty where they form none.
std::vector<Wait> cycle_of(const std::vector<Wait>& waits, const std::vector<int>& by) {
  std::vector<size_t> walk_of(by.size(), 0);  // which walk came by, from 1
  for (size_t first = 0; first < by.size(); ++first) {
    size_t node = first;
    while (walk_of[node] == 0 && by[node] >= 0) {
      walk_of[node] = first + 1;
      node = waits[static_cast<size_t>(by[node])].from;
    }
    if (walk_of[node] != first + 1) continue;
    std::vector<Wait> cycle;
    const size_t start = node;
    do {
      cycle.push_back(waits[static_cast<size_t>(by[node])]);
      node = cycle.back().from;
    } while (node != start);
    return cycle;
  }
  return {};
}

/// The waits of a cycle that takes longer than `period` per micro-batch; empty where there is none. Bellman-Ford, which
/// looks after each round whether the waits that moved the starts form a cycle: a slow one shows early.
std::vector<Wait> slow_cycle(const std::vector<Wait>& all, size_t nodes, double period) {
  const std::vector<Wait> waits = in_order_of_flow(all, nodes);
  std::vector<double> latest(nodes, 0);
  std::vector<int> by(nodes, -1);
  for (size_t round = 0; round <= nodes; ++round) {
    bool changed = false;
    for (size_t w = 0; w < waits.size(); ++w) {
      if (!delays(waits[w], period, latest)) continue;
      by[waits[w].to] = static_cast<int>(w);
      changed = true;
    }
    if (!changed) return {};
    if (std::vector<Wait> cycle = cycle_of(waits, by); !cycle.empty()) return cycle;
  }
  return {};
}

double micro_batch_of(const ir::StageGraph& graph) {
  return static_cast<double>(graph.stages[StageId(size_t{0})].choice.micro_batch.count);
}

}  // namespace

bool has_cycle_form(const ir::StageGraph& graph) {
  IdSet<ir::DeviceId> used;
  for (const ir::Stage& stage : graph.stages) {
    const ir::StageChoice& choice = stage.choice;
    const bool alone = choice.devices.size() == 1 || choice.mode == ir::ReplicaMode::kSplit;
    if (!alone || choice.k != 1 || !stage.has_backward ||
        choice.micro_batch != graph.stages[StageId(size_t{0})].choice.micro_batch)
      return false;
    for (const ir::DeviceId device : choice.devices)
      if (!used.insert(device)) return false;
  }
  return !graph.stages.empty();
}

double cycle_period(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs,
                    const IdMap<StageId, Samples>& samples) {
  const std::vector<Wait> waits = waits_of(graph, costs, samples);
  double low = 0, high = 0;
  for (const Wait& wait : waits) high += wait.seconds;
  // Each slow cycle raises the guess to its own quotient; the last one is the largest.
  for (std::vector<Wait> cycle = slow_cycle(waits, 2 * graph.stages.size(), low); !cycle.empty();
       cycle = slow_cycle(waits, 2 * graph.stages.size(), low)) {
    double seconds = 0, span = 0;
    for (const Wait& wait : cycle) {
      seconds += wait.seconds;
      span += wait.span;
    }
    if (span < 0.5) return high;  // a cycle without an end: a deadlock
    low = std::max(low * (1 + 1e-12), seconds / span);
  }
  return low / micro_batch_of(graph);
}

IdMap<StageId, Samples> raise_to_period(const ir::StageGraph& graph, const IdMap<StageId, StageCost>& costs,
                                        double period, IdMap<StageId, Samples> samples) {
  if (!has_cycle_form(graph)) return samples;
  const double per_micro_batch = period * micro_batch_of(graph);
  while (true) {
    const std::vector<Wait> cycle =
        slow_cycle(waits_of(graph, costs, samples), 2 * graph.stages.size(), per_micro_batch);
    // The lowest stage that turns upward in the cycle: those above it may have to follow.
    StageId raised;
    for (const Wait& wait : cycle)
      if (wait.turns_at.valid() && samples[wait.turns_at] < graph.batch && (!raised.valid() || raised < wait.turns_at))
        raised = wait.turns_at;
    if (!raised.valid()) return samples;
    samples[raised] = samples[raised] + graph.stages[raised].choice.micro_batch;
  }
}

}  // namespace graphpipe::cost
