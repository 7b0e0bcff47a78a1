#include "partitioner/graph/coarsen.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "support/digraph.h"
#include "support/sort_unique.h"
#include "support/union_find.h"
#include "support/units.h"

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;

/// The sets in topological order of the quotient; ties go to the lowest node.
NodeSets in_topological_order(const ir::PlanGraph& graph, NodeSets sets) {
  IdMap<PlanNodeId, uint32_t> set_of(graph.nodes.size(), 0);
  for (uint32_t i = 0; i < sets.size(); ++i)
    for (PlanNodeId node : sets[i]) set_of[node] = i;
  EdgeList edges;
  for (const ir::PlanValue& value : graph.values)
    for (PlanNodeId reader : value.readers)
      if (set_of[reader] != set_of[value.producer]) edges.emplace_back(set_of[value.producer], set_of[reader]);
  std::vector<uint32_t> lowest;
  for (const auto& set : sets) lowest.push_back(static_cast<uint32_t>(set.front().index()));
  NodeSets ordered;
  for (const uint32_t set : topological_order(sets.size(), edges, lowest)) ordered.push_back(std::move(sets[set]));
  GP_CHECK(ordered.size() == sets.size());  // a cycle between the sets
  return ordered;
}

ir::PlanNode joined_node(const ir::PlanGraph& graph, const std::vector<PlanNodeId>& members) {
  ir::PlanNode joined;
  joined.source = graph.nodes[members.front()].source;
  joined.label = graph.nodes[members.front()].label;
  joined.has_backward = false;
  bool may_have_replicas = true;
  for (PlanNodeId id : members) {
    const ir::PlanNode& node = graph.nodes[id];
    joined.add_seconds(node);
    joined.by_kind.resize(node.by_kind.size());
    for (size_t kind = 0; kind < node.by_kind.size(); ++kind) joined.by_kind[kind].add_seconds(node.by_kind[kind]);
    joined.stash_to_input_gradient += node.stash_to_input_gradient;
    joined.stash_to_weight_gradient += node.stash_to_weight_gradient;
    joined.kept_gradients += node.kept_gradients;
    joined.workspace = ir::SampleFunction::larger(joined.workspace, node.workspace);
    joined.buffer_bytes += node.buffer_bytes;
    joined.weights.insert(joined.weights.end(), node.weights.begin(), node.weights.end());
    joined.has_backward = joined.has_backward || node.has_backward;
    joined.scope = std::max(joined.scope, node.scope);
    joined.sums_over_replicas = joined.sums_over_replicas || node.sums_over_replicas;
    joined.exchange_seconds += node.exchange_seconds;
    may_have_replicas = may_have_replicas && node.may_have_replicas();
    joined.fewest_samples = std::max(joined.fewest_samples, node.fewest_samples);
  }
  joined.sums_over_replicas = joined.sums_over_replicas && may_have_replicas;
  sort_unique(joined.weights);
  return joined;
}

/// Merges sets of groups along edges, pass by pass.
class Merger {
 public:
  Merger(const ir::PlanGraph& graph, const NodeGroups& groups, const CoarsenLimits& limits)
      : graph_(graph),
        groups_(groups),
        group_of_(graph.nodes.size(), 0),
        sets_(groups.nodes.size()),
        weight_(groups.nodes.size(), 0),
        scope_(groups.nodes.size()),
        may_have_replicas_(groups.nodes.size(), true),
        keeps_narrow_ends_(limits.keeps_narrow_ends) {
    double seconds = 0, bytes = 0;
    for (double weight : groups.weight) seconds += weight;
    for (const ir::WeightGroup& weights : graph.weight_groups) bytes += static_cast<double>(weights.bytes.count);
    for (size_t group = 0; group < groups.nodes.size(); ++group) {
      double own = 0;
      for (PlanNodeId node : groups.nodes[group]) {
        group_of_[node] = group;
        for (ir::WeightGroupId weights : graph.nodes[node].weights)
          own += static_cast<double>(graph.weight_groups[weights].bytes.count);
      }
      scope_[group] = graph.scope_of(groups.nodes[group]);
      may_have_replicas_[group] = std::ranges::all_of(
          groups.nodes[group], [&](PlanNodeId node) { return graph.nodes[node].may_have_replicas(); });
      // Work and weight bytes count half each, as shares of the total.
      weight_[group] = groups.weight[group] / std::max(2 * seconds, kMinSeconds) + own / std::max(2 * bytes, 1.0);
    }
    max_weight_ = 1 / limits.parts;
    set_boundaries(limits);
  }

  NodeSets run() {
    while (pass() || join_twins()) {
    }
    NodeSets sets;
    std::vector<size_t> place(sets_.size(), 0);
    for (size_t group = 0; group < sets_.size(); ++group)
      if (find(group) == group) {
        place[group] = sets.size();
        sets.emplace_back();
      }
    for (size_t group = 0; group < sets_.size(); ++group) {
      std::vector<PlanNodeId>& set = sets[place[find(group)]];
      set.insert(set.end(), groups_.nodes[group].begin(), groups_.nodes[group].end());
    }
    for (auto& set : sets) std::sort(set.begin(), set.end());
    return sets;
  }

 private:
  size_t find(size_t group) { return sets_.find(group); }
  void join(size_t into, size_t other) {
    weight_[into] += weight_[other];
    sets_.join_into(into, other);
  }

  void set_boundaries(const CoarsenLimits& limits) {
    stage_.assign(sets_.size(), 0);
    alone_.assign(sets_.size(), false);
    if (limits.stage_of == nullptr) return;
    for (size_t group = 0; group < sets_.size(); ++group)
      stage_[group] = (*limits.stage_of)[groups_.nodes[group].front()].index();
    for (const auto& [group, next] : groups_.graph.edges())
      if (stage_[group] != stage_[next]) alone_[group] = alone_[next] = true;
  }

  bool may_join(size_t a, size_t b) const {
    return !alone_[a] && !alone_[b] && stage_[a] == stage_[b] && scope_[a] == scope_[b] &&
           may_have_replicas_[a] == may_have_replicas_[b] && weight_[a] + weight_[b] <= max_weight_;
  }

  struct Neighbours {
    std::vector<std::set<size_t>> next, before;
  };
  /// By set whether it sends on less than a quarter of what it receives, bytes: a good place for the end of a stage.
  std::vector<bool> narrow_ends() {
    std::vector<double> sent(sets_.size(), 0), received(sets_.size(), 0);
    for (const ir::PlanValue& value : graph_.values) {
      const size_t producer = find(group_of_[value.producer]);
      std::set<size_t> readers;
      for (const PlanNodeId reader : value.readers) readers.insert(find(group_of_[reader]));
      readers.erase(producer);
      const double bytes = value.bytes.at(1);
      if (!readers.empty()) sent[producer] += bytes;
      for (const size_t reader : readers) received[reader] += bytes;
    }
    std::vector<bool> narrow;
    for (size_t set = 0; set < sets_.size(); ++set) narrow.push_back(4 * sent[set] < received[set]);
    return narrow;
  }
  /// The successors and predecessors of each set.
  Neighbours neighbours() {
    Neighbours found{std::vector<std::set<size_t>>(sets_.size()), std::vector<std::set<size_t>>(sets_.size())};
    for (const auto& [group, below] : groups_.graph.edges())
      if (find(group) != find(below)) {
        found.next[find(group)].insert(find(below));
        found.before[find(below)].insert(find(group));
      }
    return found;
  }

  /// One round of merges along edges. Each set takes part in one merge, except that several sets may join the one
  /// reader that each of them has; none over a narrow end. Returns whether any were merged. Example: in a -> b -> c ->
  /// d the first round makes {a, b} and {c, d}, the second joins these two.
  bool pass() {
    const auto [next, before] = neighbours();
    const std::vector<bool> narrow = keeps_narrow_ends_ ? narrow_ends() : std::vector<bool>(sets_.size(), false);
    std::vector<bool> used(sets_.size(), false), sink(sets_.size(), false);
    bool any = false;
    for (size_t set = 0; set < sets_.size(); ++set) {
      if (find(set) != set || used[set]) continue;
      if (next[set].size() == 1 && !sink[set] && !narrow[set]) {
        const size_t reader = *next[set].begin();
        if (!used[reader] && may_join(reader, set)) {
          join(reader, set);
          any = true;
          used[set] = sink[reader] = true;
          continue;
        }
      }
      if (before[set].size() == 1 && !sink[set]) {
        const size_t producer = *before[set].begin();
        if (find(producer) != producer || used[producer] || sink[producer] || narrow[producer] ||
            !may_join(producer, set))
          continue;
        join(producer, set);
        any = true;
        used[set] = used[producer] = true;
      }
    }
    return any;
  }

  /// Merges sets with the same predecessors and successors where more than kManyTwins lie side by side. Returns whether
  /// any were merged.
  bool join_twins() {
    const auto [next, before] = neighbours();
    std::map<std::pair<std::set<size_t>, std::set<size_t>>, std::vector<size_t>> twins;
    for (size_t set = 0; set < sets_.size(); ++set)
      if (find(set) == set) twins[{before[set], next[set]}].push_back(set);
    bool any = false;
    for (const auto& [neighbours, sets] : twins) {
      if (sets.size() <= kManyTwins) continue;
      size_t into = sets.front();
      for (size_t i = 1; i < sets.size(); ++i) {
        if (!may_join(into, sets[i])) {
          into = sets[i];
          continue;
        }
        join(into, sets[i]);
        any = true;
      }
    }
    return any;
  }

  static constexpr size_t kManyTwins = 8;
  const ir::PlanGraph& graph_;
  const NodeGroups& groups_;
  IdMap<PlanNodeId, size_t> group_of_;
  UnionFind<size_t> sets_;
  std::vector<double> weight_;
  std::vector<ir::SampleScope> scope_;
  std::vector<bool> may_have_replicas_;
  std::vector<bool> alone_;
  std::vector<size_t> stage_;
  double max_weight_ = 1;
  bool keeps_narrow_ends_;
};

}  // namespace

CoarseGraph contract(const ir::PlanGraph& graph, NodeSets sets) {
  CoarseGraph result;
  result.members = in_topological_order(graph, std::move(sets));
  IdMap<PlanNodeId, PlanNodeId> set_of(graph.nodes.size());
  for (size_t i = 0; i < result.members.size(); ++i)
    for (PlanNodeId node : result.members[i]) set_of[node] = PlanNodeId(i);
  ir::PlanGraph& small = result.graph;
  small.weight_groups = graph.weight_groups;
  small.batch = graph.batch;
  small.optimizer_state_per_weight_byte = graph.optimizer_state_per_weight_byte;
  small.execution = graph.execution;
  small.versions = graph.versions;
  small.one_sample = graph.one_sample;
  small.kind_of_device = graph.kind_of_device;
  for (const auto& members : result.members) small.nodes.push_back(joined_node(graph, members));
  for (const ir::PlanValue& value : graph.values) {
    ir::PlanValue crossing = value;
    crossing.producer = set_of[value.producer];
    for (auto* list : {&crossing.readers, &crossing.gradient_readers, &crossing.saved_by_input_gradient,
                       &crossing.saved_by_weight_gradient})
      for (PlanNodeId& node : *list) node = set_of[node];
    sort_unique(crossing.readers);
    std::erase(crossing.readers, crossing.producer);
    sort_unique(crossing.gradient_readers);
    std::erase(crossing.gradient_readers, crossing.producer);
    sort_unique(crossing.saved_by_input_gradient);
    sort_unique(crossing.saved_by_weight_gradient);
    if (!crossing.readers.empty()) {
      small.values.push_back(std::move(crossing));
      continue;
    }
    ir::PlanNode& node = small.nodes[crossing.producer];
    const bool until_weight = !value.saved_by_weight_gradient.empty();
    if (until_weight) node.stash_to_weight_gradient += value.bytes;
    if (until_weight || !value.saved_by_input_gradient.empty()) node.stash_to_input_gradient += value.bytes;
  }
  return result;
}

ir::Assignment expand(const CoarseGraph& small, size_t nodes, const ir::Assignment& assignment) {
  ir::Assignment large;
  large.choice = assignment.choice;
  large.stage_of.resize(nodes);
  for (size_t i = 0; i < small.members.size(); ++i)
    for (PlanNodeId node : small.members[i]) large.stage_of[node] = assignment.stage_of[PlanNodeId(i)];
  return large;
}

NodeSets coarsen(const ir::PlanGraph& graph, const NodeGroups& groups, const CoarsenLimits& limits) {
  return Merger(graph, groups, limits).run();
}

}  // namespace graphpipe::partitioner
