#include "partitioner/graphpipe/search_space.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "cost/lower_bound.h"
#include "ir/connected_components.h"
#include "support/digraph.h"

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;

class TreeSpace {
 public:
  TreeSpace(const NodeGroups& groups, double smallest) : groups_(groups), smallest_(smallest) {}

  SearchSpace run(const SpTree& tree) {
    chain_of(tree);
    return std::move(space_);
  }

 private:
  SearchElement whole(const SpTree& tree) const {
    SearchElement element;
    for (size_t group : tree.vertices())
      element.nodes.insert(element.nodes.end(), groups_.nodes[group].begin(), groups_.nodes[group].end());
    std::sort(element.nodes.begin(), element.nodes.end());
    return element;
  }

  int chain_of(const SpTree& tree) {
    SearchChain chain;
    double last_weight = smallest_;
    const auto append = [&](const SpTree& child) {
      const double weight = weight_of(child, groups_.weight);
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

  const NodeGroups& groups_;
  double smallest_;
  SearchSpace space_;
};

/// A topological order that follows a branch to its end before it starts the next: a group comes as soon as its last
/// predecessor has, the most recent first.
std::vector<size_t> depth_first_order(const Dag& graph) {
  // With mirrored numbers the lowest of the groups that become ready together is the last, and so comes first.
  const auto mirrored = [&](uint32_t group) { return static_cast<uint32_t>(graph.size()) - 1 - group; };
  EdgeList edges;
  for (uint32_t group = 0; group < graph.size(); ++group) {
    const std::span<const uint32_t> next = graph.successors(group);
    for (auto below = next.rbegin(); below != next.rend(); ++below)
      edges.emplace_back(mirrored(group), mirrored(*below));
  }
  std::vector<size_t> order;
  for (const uint32_t group : last_in_first_out_order(graph.size(), edges)) order.push_back(mirrored(group));
  return order;
}

}  // namespace

NodeGroups group_nodes(const ir::PlanGraph& graph) {
  const size_t count = graph.nodes.size();
  EdgeList edges;
  for (const ir::PlanValue& value : graph.values)
    for (const PlanNodeId reader : value.readers)
      edges.emplace_back(static_cast<uint32_t>(value.producer.index()), static_cast<uint32_t>(reader.index()));
  UnionFind<> sets(count);
  bool any = false;
  for (const auto& set : graph.colocated)
    for (const PlanNodeId node : set)
      any = sets.join(static_cast<uint32_t>(set.front().index()), static_cast<uint32_t>(node.index())) || any;
  if (any) ir::join_cycles(edges, sets);

  // A topological order of the sets; ties go to the lowest node.
  std::set<std::pair<uint32_t, uint32_t>> between;
  for (const auto& [from, to] : edges)
    if (sets.find(from) != sets.find(to)) between.emplace(sets.find(from), sets.find(to));
  std::vector<uint32_t> roots = topological_order(count, {between.begin(), between.end()});
  std::erase_if(roots, [&](uint32_t node) { return sets.find(node) != node; });
  std::vector<uint32_t> group_of_root(count, 0);
  for (uint32_t group = 0; group < roots.size(); ++group) group_of_root[roots[group]] = group;
  NodeGroups groups;
  groups.nodes.resize(roots.size());
  groups.weight.resize(roots.size(), 0);
  for (size_t i = 0; i < count; ++i) {
    const size_t group = group_of_root[sets.find(static_cast<uint32_t>(i))];
    groups.nodes[group].push_back(PlanNodeId(i));
    groups.weight[group] += cost::cheapest_seconds_per_sample(graph.nodes[PlanNodeId(i)], graph.batch);
  }
  EdgeList between_groups;
  for (const auto& [from, to] : between) between_groups.emplace_back(group_of_root[from], group_of_root[to]);
  groups.graph = Dag(roots.size(), std::move(between_groups));
  return groups;
}

size_t SearchSpace::elements() const {
  size_t count = 0;
  for (const SearchChain& chain : chains) count += chain.elements.size();
  return count;
}

SearchSpace space_of_tree(const SpTree& tree, const NodeGroups& groups, double smallest) {
  return TreeSpace(groups, smallest).run(tree);
}

SearchSpace space_of_line(const NodeGroups& groups, double smallest) {
  std::vector<SpTree> leaves;
  for (size_t group : depth_first_order(groups.graph)) leaves.push_back(SpTree::leaf(group));
  return TreeSpace(groups, smallest).run(SpTree::series(std::move(leaves)));
}

}  // namespace graphpipe::partitioner
