#include "partitioner/graphpipe/search_space.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "cost/lower_bound.h"
#include "partitioner/graph/item_closure.h"

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;

class DisjointSets {
 public:
  explicit DisjointSets(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }
  size_t find(size_t item) {
    while (parent_[item] != item) item = parent_[item] = parent_[parent_[item]];
    return item;
  }
  /// The lower root stays.
  bool join(size_t a, size_t b) {
    a = find(a);
    b = find(b);
    if (a == b) return false;
    parent_[std::max(a, b)] = std::min(a, b);
    return true;
  }

 private:
  std::vector<size_t> parent_;
};

/// Joins what lies on a path between two nodes of one set, until no set can be left and entered again.
void close_cycles(const ir::PlanAdjacency& adjacency, DisjointSets& sets, size_t count) {
  ItemGraph graph(count);
  for (size_t i = 0; i < count; ++i)
    for (PlanNodeId next : adjacency.successors[PlanNodeId(i)]) graph[i].push_back(next.index());
  // Strongly connected sets of the quotient, by repeated contraction: forward reach from each set that has several.
  bool changed = true;
  while (changed) {
    changed = false;
    std::vector<std::vector<size_t>> members(count);
    for (size_t i = 0; i < count; ++i) members[sets.find(i)].push_back(i);
    for (size_t root = 0; root < count && !changed; ++root) {
      if (members[root].size() < 2) continue;
      // Two sweeps over the quotient: what the set reaches, then what of that reaches the set.
      std::vector<size_t> pending{root};
      std::map<size_t, std::vector<size_t>> entered_from;
      std::set<size_t> seen{root};
      while (!pending.empty()) {
        const size_t at = pending.back();
        pending.pop_back();
        for (size_t node : members[at])
          for (size_t next : graph[node]) {
            const size_t target = sets.find(next);
            if (target == at) continue;
            entered_from[target].push_back(at);
            if (seen.insert(target).second) pending.push_back(target);
          }
      }
      std::vector<size_t> back(entered_from[root]);
      std::set<size_t> on_cycle(back.begin(), back.end());
      while (!back.empty()) {
        const size_t at = back.back();
        back.pop_back();
        if (at == root) continue;
        for (size_t from : entered_from[at])
          if (on_cycle.insert(from).second) back.push_back(from);
      }
      for (size_t other : on_cycle) changed = sets.join(root, other) || changed;
    }
  }
}

class TreeSpace {
 public:
  TreeSpace(const Items& items, double smallest) : items_(items), smallest_(smallest) {}

  SearchSpace run(const SpTree& tree) {
    chain_of(tree);
    return std::move(space_);
  }

 private:
  double weight_of(const SpTree& tree) const {
    double weight = 0;
    for (size_t item : tree.items()) weight += items_.weight[item];
    return weight;
  }

  SearchElement whole(const SpTree& tree) const {
    SearchElement element;
    for (size_t item : tree.items())
      element.nodes.insert(element.nodes.end(), items_.nodes[item].begin(), items_.nodes[item].end());
    std::sort(element.nodes.begin(), element.nodes.end());
    return element;
  }

  int chain_of(const SpTree& tree) {
    SearchChain chain;
    double last_weight = smallest_;
    const auto append = [&](const SpTree& child) {
      const double weight = weight_of(child);
      const bool is_small = weight < smallest_;
      SearchElement element = whole(child);
      if (child.kind == SpTree::Kind::kParallel && !is_small)
        for (const SpTree& branch : child.children) element.branches.push_back(chain_of(branch));
      if (element.branches.empty() && !chain.elements.empty() && chain.elements.back().branches.empty() &&
          last_weight + weight < smallest_) {
        auto& nodes = chain.elements.back().nodes;
        nodes.insert(nodes.end(), element.nodes.begin(), element.nodes.end());
        std::sort(nodes.begin(), nodes.end());
        last_weight += weight;
        return;
      }
      last_weight = weight;
      chain.elements.push_back(std::move(element));
    };
    if (tree.kind == SpTree::Kind::kSeries)
      for (const SpTree& child : tree.children) append(child);
    else append(tree);
    for (const SearchElement& element : chain.elements)
      chain.nodes.insert(chain.nodes.end(), element.nodes.begin(), element.nodes.end());
    chain.shape = static_cast<int>(space_.chains.size());
    space_.chains.push_back(std::move(chain));
    return static_cast<int>(space_.chains.size()) - 1;
  }

  const Items& items_;
  double smallest_;
  SearchSpace space_;
};

/// A topological order that follows a branch to its end before it starts the next: an item comes as soon as its last
/// predecessor has, the most recent first.
std::vector<size_t> depth_first_order(const ItemGraph& graph) {
  std::vector<size_t> waiting(graph.size(), 0);
  for (const auto& successors : graph)
    for (size_t next : successors) ++waiting[next];
  std::vector<size_t> ready, order;
  for (size_t i = graph.size(); i-- > 0;)
    if (waiting[i] == 0) ready.push_back(i);
  while (!ready.empty()) {
    const size_t item = ready.back();
    ready.pop_back();
    order.push_back(item);
    for (size_t i = graph[item].size(); i-- > 0;)
      if (--waiting[graph[item][i]] == 0) ready.push_back(graph[item][i]);
  }
  return order;
}

}  // namespace

Items make_items(const ir::PlanGraph& graph) {
  const ir::PlanAdjacency adjacency = adjacency_of(graph);
  const size_t count = graph.nodes.size();
  DisjointSets sets(count);
  bool any = false;
  for (const auto& set : graph.colocated)
    for (PlanNodeId node : set) any = sets.join(set.front().index(), node.index()) || any;
  if (any) close_cycles(adjacency, sets, count);

  // A topological order of the sets; ties go to the lowest node.
  std::vector<std::set<size_t>> successors(count);
  std::vector<size_t> waiting(count, 0);
  for (size_t i = 0; i < count; ++i)
    for (PlanNodeId next : adjacency.successors[PlanNodeId(i)]) {
      const size_t from = sets.find(i), to = sets.find(next.index());
      if (from != to && successors[from].insert(to).second) ++waiting[to];
    }
  std::set<size_t> ready;
  for (size_t i = 0; i < count; ++i)
    if (sets.find(i) == i && waiting[i] == 0) ready.insert(i);
  std::vector<size_t> item_of_root(count, 0), roots;
  while (!ready.empty()) {
    const size_t root = *ready.begin();
    ready.erase(ready.begin());
    item_of_root[root] = roots.size();
    roots.push_back(root);
    for (size_t next : successors[root])
      if (--waiting[next] == 0) ready.insert(next);
  }
  Items items;
  items.nodes.resize(roots.size());
  items.graph.resize(roots.size());
  items.weight.resize(roots.size(), 0);
  for (size_t i = 0; i < count; ++i) {
    const size_t item = item_of_root[sets.find(i)];
    items.nodes[item].push_back(PlanNodeId(i));
    items.weight[item] += cost::cheapest_seconds_per_sample(graph.nodes[PlanNodeId(i)], graph.batch);
  }
  for (size_t item = 0; item < roots.size(); ++item) {
    for (size_t next : successors[roots[item]]) items.graph[item].push_back(item_of_root[next]);
    std::sort(items.graph[item].begin(), items.graph[item].end());
  }
  return items;
}

SearchSpace space_of_tree(const SpTree& tree, const Items& items, double smallest) {
  return TreeSpace(items, smallest).run(tree);
}

SearchSpace space_of_line(const Items& items, double smallest) {
  std::vector<SpTree> leaves;
  for (size_t item : depth_first_order(items.graph)) leaves.push_back(SpTree::leaf(item));
  return TreeSpace(items, smallest).run(SpTree::series(std::move(leaves)));
}

}  // namespace graphpipe::partitioner
