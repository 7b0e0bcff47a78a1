#include "support/digraph.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace graphpipe {
namespace {

/// Edges between any nodes, so that there are cycles among them more often than not.
EdgeList random_edges(uint64_t seed, uint32_t nodes) {
  std::mt19937_64 random(seed);
  EdgeList edges(random() % (2 * nodes));
  for (auto& [from, to] : edges) {
    from = static_cast<uint32_t>(random() % nodes);
    to = static_cast<uint32_t>((from + 1 + random() % (nodes - 1)) % nodes);
  }
  return edges;
}

/// By node and node whether a path of at least one edge leads from the first to the second.
std::vector<std::vector<bool>> reach(const EdgeList& edges, uint32_t nodes) {
  std::vector<std::vector<bool>> reaches(nodes, std::vector<bool>(nodes));
  for (const auto& [from, to] : edges) reaches[from][to] = true;
  for (uint32_t over = 0; over < nodes; ++over)
    for (uint32_t from = 0; from < nodes; ++from)
      for (uint32_t to = 0; to < nodes; ++to)
        if (reaches[from][over] && reaches[over][to]) reaches[from][to] = true;
  return reaches;
}

}  // namespace

TEST_CASE("an order has all nodes but those on cycles and behind them, and follows the edges") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto nodes = static_cast<uint32_t>(2 + seed % 9);
    const EdgeList edges = random_edges(seed, nodes);
    const auto reaches = reach(edges, nodes);
    std::vector<uint32_t> left_out;
    for (uint32_t node = 0; node < nodes; ++node) {
      bool is_behind = reaches[node][node];
      for (uint32_t other = 0; other < nodes; ++other)
        is_behind = is_behind || (reaches[other][other] && reaches[other][node]);
      if (is_behind) left_out.push_back(node);
    }
    const std::vector<uint32_t> order = topological_order(nodes, edges);
    CHECK(order.size() + left_out.size() == nodes);
    for (size_t i = 0; i < order.size(); ++i) {
      CHECK_FALSE(std::ranges::binary_search(left_out, order[i]));
      for (size_t k = i; k < order.size(); ++k) CHECK_FALSE(reaches[order[k]][order[i]]);
    }
    const auto first = first_on_cycle(nodes, edges);
    CHECK(first.has_value() == !left_out.empty());
    if (first) CHECK(*first == left_out.front());
  }
}

TEST_CASE("what is reached from some nodes is what paths lead to from one of them, each once") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto nodes = static_cast<uint32_t>(2 + seed % 9);
    const EdgeList edges = random_edges(seed, nodes);
    const auto reaches = reach(edges, nodes);
    const std::vector<uint32_t> start = {static_cast<uint32_t>(seed % nodes), static_cast<uint32_t>(seed / 7 % nodes)};
    std::vector<uint32_t> found = reached_from(start, [&](uint32_t node, auto visit) {
      for (const auto& [from, to] : edges)
        if (from == node) visit(to);
    });
    CHECK(found.front() == start.front());
    std::ranges::sort(found);
    std::vector<uint32_t> expected;
    for (uint32_t node = 0; node < nodes; ++node)
      if (std::ranges::any_of(start, [&](uint32_t from) { return from == node || reaches[from][node]; }))
        expected.push_back(node);
    CHECK(found == expected);
  }
}

TEST_CASE("ties of a topological order go to the smallest rank, then to the smallest number") {
  const EdgeList diamond = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
  CHECK(topological_order(4, diamond) == std::vector<uint32_t>{0, 1, 2, 3});
  const std::vector<uint32_t> rank = {0, 5, 4, 0};
  CHECK(topological_order(4, diamond, rank) == std::vector<uint32_t>{0, 2, 1, 3});
  CHECK(last_in_first_out_order(4, diamond) == std::vector<uint32_t>{0, 2, 1, 3});
  CHECK(first_in_first_out_order(4, diamond) == std::vector<uint32_t>{0, 1, 2, 3});
}

}  // namespace graphpipe
