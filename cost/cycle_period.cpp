#include "cost/cycle_period.h"

#include <algorithm>

#include "support/units.h"

namespace graphpipe::cost {
namespace {

using ir::StageId;

/// A dependency: `to` of micro-batch m + span starts at least `seconds` after the start of `from` of micro-batch m.
struct Wait {
  size_t from = 0, to = 0;
  double seconds = 0;
  double span = 0;
  /// For a forward that waits for the backward of its own stage: that stage, whose in-flight number is the span.
  StageId turns_at;
};

size_t forward_of(StageId stage) { return 2 * stage.index(); }
size_t backward_of(StageId stage) { return 2 * stage.index() + 1; }

/// The waits of 1F1B on every stage: n forwards, then alternately a backward and a forward. With n = 2 that is F0 F1 B0
/// F2 B1 F3 ..: F(m + 2) waits for B(m), and B(m) for F(m + 1), which is a span of 1 - n.
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

/// Whether the wait delays the start of `to`. Starts are relative to a schedule with this period, so that a span of k
/// micro-batches subtracts k periods.
bool delays(const Wait& wait, double period, std::vector<double>& latest) {
  const double slack = 1e-9 * period;
  const double time = latest[wait.from] + wait.seconds - period * wait.span - slack;
  if (time <= latest[wait.to]) return false;
  latest[wait.to] = time;
  return true;
}

/// The waits in the order in which a micro-batch meets them: down the stages and back up. Starts then converge in a few
/// rounds; in stage order, the way up would take one round per stage.
std::vector<Wait> in_order_of_flow(std::vector<Wait> waits, size_t nodes) {
  std::ranges::stable_sort(waits, {},
                           [&](const Wait& wait) { return wait.from % 2 == 0 ? wait.from : 2 * nodes - wait.from; });
  return waits;
}

/// A cycle of the waits `by` that moved each node's start last; empty if they form none.
std::vector<Wait> cycle_of(const std::vector<Wait>& waits, const std::vector<int>& by) {
  std::vector<size_t> walk_of(by.size(), 0);  // the walk that visited the node, from 1
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

/// The waits of a cycle that takes longer than `period` per micro-batch; empty if there is none. Such a cycle has a
/// positive sum of seconds - period * span. Bellman-Ford for longest paths finds it: after each round it checks whether
/// the waits that moved the starts last form a cycle, so that it need not run all rounds.
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
  double low = 0;
  // Each cycle that is slower than `low` raises it to the cycle's own ratio; the last one has the largest.
  for (std::vector<Wait> cycle = slow_cycle(waits, 2 * graph.stages.size(), low); !cycle.empty();
       cycle = slow_cycle(waits, 2 * graph.stages.size(), low)) {
    double seconds = 0, span = 0;
    for (const Wait& wait : cycle) {
      seconds += wait.seconds;
      span += wait.span;
    }
    if (span < 0.5) return kInfinity;  // a cycle that spans no micro-batch: a deadlock
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
    // Among the stages whose in-flight number the cycle spans, raise the last: those before it may have to follow.
    StageId raised;
    for (const Wait& wait : cycle)
      if (wait.turns_at.valid() && samples[wait.turns_at] < graph.batch && (!raised.valid() || raised < wait.turns_at))
        raised = wait.turns_at;
    if (!raised.valid()) return samples;
    samples[raised] = samples[raised] + graph.stages[raised].choice.micro_batch;
  }
}

}  // namespace graphpipe::cost
