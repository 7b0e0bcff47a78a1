#include "partitioner/graph/sp_tree.h"

#include <algorithm>

#include "support/check.h"

namespace graphpipe::partitioner {

namespace {

SpTree combine(SpTree::Kind kind, std::vector<SpTree> children) {
  GP_CHECK(!children.empty());
  SpTree tree{kind, 0, {}};
  for (SpTree& child : children) {
    if (child.kind != kind) {
      tree.children.push_back(std::move(child));
      continue;
    }
    for (SpTree& grandchild : child.children) tree.children.push_back(std::move(grandchild));
  }
  if (tree.children.size() == 1) return SpTree(std::move(tree.children.front()));
  return tree;
}

}  // namespace

SpTree SpTree::series(std::vector<SpTree> children) { return combine(Kind::kSeries, std::move(children)); }

SpTree SpTree::parallel(std::vector<SpTree> children) {
  SpTree tree = combine(Kind::kParallel, std::move(children));
  if (tree.kind != Kind::kParallel) return tree;
  std::vector<std::pair<size_t, size_t>> order;
  for (size_t i = 0; i < tree.children.size(); ++i) order.push_back({tree.children[i].lowest_vertex(), i});
  std::sort(order.begin(), order.end());
  std::vector<SpTree> sorted;
  for (const auto& [lowest, index] : order) sorted.push_back(std::move(tree.children[index]));
  tree.children = std::move(sorted);
  return tree;
}

std::vector<size_t> SpTree::vertices() const {
  std::vector<size_t> found;
  std::vector<const SpTree*> pending{this};
  while (!pending.empty()) {
    const SpTree* tree = pending.back();
    pending.pop_back();
    if (tree->kind == Kind::kLeaf) found.push_back(tree->vertex);
    for (size_t i = tree->children.size(); i-- > 0;) pending.push_back(&tree->children[i]);
  }
  return found;
}

size_t SpTree::lowest_vertex() const {
  const std::vector<size_t> all = vertices();
  return *std::min_element(all.begin(), all.end());
}

std::string SpTree::str() const {
  if (kind == Kind::kLeaf) return std::to_string(vertex);
  std::string text = "(";
  for (const SpTree& child : children) {
    if (text.size() > 1) text += kind == Kind::kSeries ? ";" : "|";
    text += child.str();
  }
  return text + ")";
}

double weight_of(const SpTree& tree, const std::vector<double>& weight) {
  double sum = 0;
  for (const size_t vertex : tree.vertices()) sum += weight[vertex];
  return sum;
}

}  // namespace graphpipe::partitioner
