// What several searches of one space have in common: equal chains, and branches in lanes.

#include <algorithm>
#include <map>
#include <numeric>

#include "partitioner/graphpipe/search_space.h"

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;
using ir::PlanValueId;
using Signature = std::vector<double>;

struct Touching {
  std::vector<PlanValueId> made, read;
};

/// Writes down what a search sees of a chain; equal signatures mean equal chains.
class Describer {
 public:
  Describer(const ir::PlanGraph& graph, const SearchSpace& space)
      : graph_(graph), space_(space), touching_(graph.nodes.size()), group_users_(graph.weight_groups.size(), 0) {
    for (PlanValueId id : graph.value_ids()) {
      touching_[graph.values[id].producer].made.push_back(id);
      for (PlanNodeId reader : graph.values[id].readers) touching_[reader].read.push_back(id);
    }
    for (const ir::PlanNode& node : graph.nodes)
      for (ir::WeightGroupId group : node.weights) ++group_users_[group];
  }

  Signature describe(const SearchChain& chain) {
    text_.clear();
    place_.clear();
    outside_.clear();
    for (size_t i = 0; i < chain.nodes.size(); ++i) place_[chain.nodes[i]] = i;
    for (const SearchElement& element : chain.elements) {
      add(element.nodes.size());
      add(element.branches.size());
      for (int branch : element.branches) add(space_.chains[static_cast<size_t>(branch)].shape);
    }
    for (PlanNodeId node : chain.nodes) add_node(node);
    return std::move(text_);
  }

 private:
  template <typename Number>
  void add(Number number) {
    text_.push_back(static_cast<double>(number));
  }

  void add(const ir::SampleFunction& price) {
    for (double c : {price.constant(), price.linear(), price.quadratic()}) add(c);
    add(price.points().size());
    for (const auto& point : price.points()) {
      add(point.samples);
      add(point.value);
    }
  }

  void add_nodes(const std::vector<PlanNodeId>& nodes) {
    add(nodes.size());
    for (PlanNodeId node : nodes) {
      const auto found = place_.find(node);
      add(found == place_.end() ? -1.0 : static_cast<double>(found->second));
    }
  }

  void add_node(PlanNodeId id) {
    const ir::PlanNode& node = graph_.nodes[id];
    for (const ir::SampleFunction* price :
         {&node.forward, &node.input_gradient, &node.weight_gradient, &node.stash_to_input_gradient,
          &node.stash_to_weight_gradient, &node.kept_gradients, &node.workspace})
      add(*price);
    add(node.buffer_bytes.count);
    add(node.has_backward);
    add(static_cast<int>(node.scope));
    add(node.sums_over_replicas);
    add(node.exchange_seconds);
    add(node.fewest_samples);
    add(node.weights.size());
    for (ir::WeightGroupId group : node.weights) {
      add(graph_.weight_groups[group].bytes.count);
      add(graph_.weight_groups[group].trainable);
      // Ties are rare: a chain with tied weights is like no other.
      add(group_users_[group] > 1 ? static_cast<double>(group.index() + 2) : 1.0);
    }
    for (PlanValueId value : touching_[id].made) {
      add_value(value);
      const ir::PlanValue& made = graph_.values[value];
      for (const auto* list :
           {&made.readers, &made.gradient_readers, &made.saved_by_input_gradient, &made.saved_by_weight_gradient})
        add_nodes(*list);
    }
    for (PlanValueId value : touching_[id].read) add_outside(value, id);
  }

  void add_value(PlanValueId id) {
    const ir::PlanValue& value = graph_.values[id];
    add(value.bytes);
    add(value.gradient_bytes);
    add(static_cast<int>(value.batch));
  }

  void add_outside(PlanValueId id, PlanNodeId reader) {
    const ir::PlanValue& value = graph_.values[id];
    if (place_.contains(value.producer)) return;
    const auto [entry, is_new] = outside_.try_emplace(id, outside_.size());
    add(entry->second);
    if (is_new) add_value(id);
    for (const auto* list : {&value.gradient_readers, &value.saved_by_input_gradient, &value.saved_by_weight_gradient})
      add(std::count(list->begin(), list->end(), reader));
  }

  const ir::PlanGraph& graph_;
  const SearchSpace& space_;
  IdMap<PlanNodeId, Touching> touching_;
  IdMap<ir::WeightGroupId, int> group_users_;
  Signature text_;
  std::map<PlanNodeId, size_t> place_;
  std::map<PlanValueId, size_t> outside_;
};

}  // namespace

void find_shapes(const ir::PlanGraph& graph, SearchSpace& space) {
  Describer describer(graph, space);
  std::map<Signature, int> first;
  // Branches come before the chains that hold them. The whole graph is like nothing else.
  for (size_t i = 0; i + 1 < space.chains.size(); ++i)
    space.chains[i].shape = first.try_emplace(describer.describe(space.chains[i]), static_cast<int>(i)).first->second;
}

size_t widest(const SpTree& tree) {
  size_t width = tree.kind == SpTree::Kind::kParallel ? tree.children.size() : 1;
  for (const SpTree& child : tree.children) width = std::max(width, widest(child));
  return width;
}

SpTree in_lanes(const SpTree& tree, size_t lanes, const std::vector<double>& weight) {
  if (tree.kind == SpTree::Kind::kLeaf) return tree;
  std::vector<SpTree> children;
  for (const SpTree& child : tree.children) children.push_back(in_lanes(child, lanes, weight));
  if (tree.kind == SpTree::Kind::kSeries) return SpTree::series(std::move(children));
  if (children.size() <= lanes) return SpTree::parallel(std::move(children));
  // The heaviest first, each into the lane that is lightest so far.
  std::vector<size_t> order(children.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<double> weights;
  for (const SpTree& child : children) weights.push_back(weight_of(child, weight));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  std::vector<std::vector<size_t>> lane(lanes);
  std::vector<double> load(lanes, 0);
  for (size_t child : order) {
    const size_t lightest = static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    lane[lightest].push_back(child);
    load[lightest] += weights[child];
  }
  std::vector<SpTree> trees;
  for (auto& members : lane) {
    if (members.empty()) continue;
    std::sort(members.begin(), members.end());
    std::vector<SpTree> chain;
    for (size_t child : members) chain.push_back(std::move(children[child]));
    trees.push_back(SpTree::series(std::move(chain)));
  }
  return SpTree::parallel(std::move(trees));
}

}  // namespace graphpipe::partitioner
