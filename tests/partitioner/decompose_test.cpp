#include <doctest/doctest.h>

#include <algorithm>

#include "partitioner/graph/sp_decompose.h"
#include "tests/support/random_plan_graphs.h"

using namespace graphpipe;
using namespace graphpipe::partitioner;

namespace {

using tests::dag_of;
using tests::SuccessorLists;

SuccessorLists item_graph(const std::vector<std::vector<size_t>>& predecessors) {
  SuccessorLists graph(predecessors.size());
  for (size_t i = 0; i < predecessors.size(); ++i)
    for (size_t p : predecessors[i]) graph[p].push_back(i);
  return graph;
}

/// The graph that a tree stands for: in a series the last items of a part feed the first of the next.
void compose(const SpTree& tree, SuccessorLists& graph, std::vector<size_t>& first, std::vector<size_t>& last) {
  if (tree.kind == SpTree::Kind::kLeaf) {
    first = last = {tree.vertex};
    return;
  }
  std::vector<size_t> previous;
  for (size_t i = 0; i < tree.children.size(); ++i) {
    std::vector<size_t> child_first, child_last;
    compose(tree.children[i], graph, child_first, child_last);
    if (tree.kind == SpTree::Kind::kParallel) {
      first.insert(first.end(), child_first.begin(), child_first.end());
      last.insert(last.end(), child_last.begin(), child_last.end());
      continue;
    }
    for (size_t from : previous)
      for (size_t to : child_first) graph[from].push_back(to);
    if (i == 0) first = child_first;
    previous = last = child_last;
  }
}

SuccessorLists composed(const SpTree& tree, size_t items) {
  SuccessorLists graph(items);
  std::vector<size_t> first, last;
  compose(tree, graph, first, last);
  for (auto& successors : graph) std::sort(successors.begin(), successors.end());
  return graph;
}

bool is_canonical(const SpTree& tree) {
  if (tree.kind == SpTree::Kind::kLeaf) return tree.children.empty();
  if (tree.children.size() < 2) return false;
  for (size_t i = 0; i < tree.children.size(); ++i) {
    const SpTree& child = tree.children[i];
    if (child.kind == tree.kind || !is_canonical(child)) return false;
    if (tree.kind == SpTree::Kind::kParallel && i > 0 && child.lowest_vertex() < tree.children[i - 1].lowest_vertex())
      return false;
  }
  return true;
}

}  // namespace

TEST_CASE("decompose, compose: the transitive reduction comes back, and the same tree again") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    const size_t nodes = 2 + dice.below(20);
    const SuccessorLists graph = item_graph(tests::random_sp_edges(dice, nodes));
    const auto tree = decompose(dag_of(graph));
    REQUIRE(tree);
    CHECK(is_canonical(*tree));
    const SuccessorLists again = composed(*tree, nodes);
    CHECK(dag_of(again) == transitive_reduction(dag_of(graph)));
    CHECK(decompose(dag_of(again)) == tree);
    std::vector<size_t> items = tree->vertices();
    std::sort(items.begin(), items.end());
    for (size_t i = 0; i < nodes; ++i) CHECK(items[i] == i);
  }
}

TEST_CASE("the fast and the slow decomposition agree on every DAG, refusals included") {
  int series_parallel = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    SuccessorLists graph(1 + dice.below(9));
    for (size_t to = 1; to < graph.size(); ++to)
      for (size_t from = 0; from < to; ++from)
        if (dice.below(4) == 0) graph[from].push_back(to);
    const auto fast = decompose(dag_of(graph)), slow = decompose_slowly(dag_of(graph));
    CHECK(fast.has_value() == slow.has_value());
    if (fast && slow) {
      CHECK(fast->str() == slow->str());
      ++series_parallel;
    }
  }
  CHECK(series_parallel > 100);
  CHECK(series_parallel < 590);
}

TEST_CASE("residual edges vanish; the N shape is refused") {
  CHECK(decompose(dag_of({{1, 2, 3}, {2}, {3}, {}}))->str() == "(0;1;2;3)");
  CHECK(decompose(dag_of({{1, 2}, {3}, {3}, {}}))->str() == "(0;(1|2);3)");
  CHECK(decompose(dag_of({{1, 2}, {}, {}}))->str() == "(0;(1|2))");
  CHECK(decompose(dag_of({{}, {}}))->str() == "(0|1)");
  CHECK(decompose(dag_of({{2, 3}, {2, 3}, {}, {}}))->str() == "((0|1);(2|3))");
  CHECK_FALSE(decompose(dag_of({{2, 3}, {3}, {}, {}})));
}

TEST_CASE(
    "what is not series-parallel is cut where the critical paths before and after the cut are shortest together") {
  const Dag graph = dag_of({{2}, {2, 3}, {}, {4}, {}});
  // 3 + 5, where the other cuts have 12, 9 and 11.
  CHECK(make_series_parallel(graph, {3, 3, 5, 1, 4}).str() == "((0|1);(2|(3;4)))");
  // 5 + 5, where the others have 13, 14 and 11.
  CHECK(make_series_parallel(graph, {5, 1, 5, 4, 4}).str() == "((0|(1;3));(2|4))");
  // 1 + 8, where the others have 11.
  CHECK(make_series_parallel(graph, {3, 1, 5, 5, 3}).str() == "(1;((0;2)|(3;4)))");
}

TEST_CASE("any DAG gets a tree that keeps its order; one that is series-parallel keeps its tree") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    tests::Dice dice(seed);
    SuccessorLists graph(2 + dice.below(12));
    for (size_t to = 1; to < graph.size(); ++to)
      for (size_t from = 0; from < to; ++from)
        if (dice.below(3) == 0) graph[from].push_back(to);
    std::vector<double> weight;
    for (size_t i = 0; i < graph.size(); ++i) weight.push_back(static_cast<double>(1 + dice.below(5)));
    const SpTree tree = make_series_parallel(dag_of(graph), weight);
    CHECK(is_canonical(tree));
    if (const auto exact = decompose(dag_of(graph))) CHECK(tree.str() == exact->str());
    // Every edge of the graph is a path of the tree's graph.
    SuccessorLists with_tree = composed(tree, graph.size());
    std::vector<size_t> position(graph.size());
    const std::vector<size_t> order = tree.vertices();
    for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
    for (size_t from = 0; from < graph.size(); ++from)
      for (size_t to : graph[from]) CHECK(position[from] < position[to]);
    std::vector<std::vector<bool>> reaches(graph.size(), std::vector<bool>(graph.size(), false));
    for (size_t i = graph.size(); i-- > 0;)
      for (size_t next : with_tree[order[i]]) {
        reaches[order[i]][next] = true;
        for (size_t k = 0; k < graph.size(); ++k)
          if (reaches[next][k]) reaches[order[i]][k] = true;
      }
    for (size_t from = 0; from < graph.size(); ++from)
      for (size_t to : graph[from]) CHECK(reaches[from][to]);
  }
}
