#include "support/digraph.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <numeric>
#include <queue>

#include "support/check.h"
#include "support/sort_unique.h"

namespace graphpipe {
namespace {

/// Rows of second ends by first end. Needs: sorted edges.
void fill_rows(size_t nodes, const EdgeList& edges, std::vector<uint32_t>& start, std::vector<uint32_t>& items) {
  start.assign(nodes + 1, 0);
  items.clear();
  items.reserve(edges.size());
  for (const auto& [from, to] : edges) {
    ++start[from + 1];
    items.push_back(to);
  }
  std::partial_sum(start.begin(), start.end(), start.begin());
}

/// Kahn's order: `add` is told the nodes that become free, `take` says which of them is next. Without nodes on cycles
/// and behind them.
template <typename Add, typename Take>
std::vector<uint32_t> order_by(size_t nodes, const EdgeList& edges, Add add, Take take) {
  std::vector<std::vector<uint32_t>> readers(nodes);
  std::vector<uint32_t> missing(nodes, 0), order;
  for (const auto& [from, to] : edges) {
    readers[from].push_back(to);
    ++missing[to];
  }
  for (uint32_t node = 0; node < nodes; ++node)
    if (missing[node] == 0) add(node);
  order.reserve(nodes);
  for (std::optional<uint32_t> next = take(); next; next = take()) {
    order.push_back(*next);
    for (const uint32_t reader : readers[*next])
      if (--missing[reader] == 0) add(reader);
  }
  return order;
}

std::vector<uint32_t> order_by_arrival(size_t nodes, const EdgeList& edges, bool last_first) {
  std::deque<uint32_t> free;
  const auto take = [&]() -> std::optional<uint32_t> {
    if (free.empty()) return std::nullopt;
    const uint32_t node = last_first ? free.back() : free.front();
    if (last_first) free.pop_back();
    else free.pop_front();
    return node;
  };
  std::vector<uint32_t> order = order_by(
      nodes, edges, [&](uint32_t node) { free.push_back(node); }, take);
  GP_CHECK(order.size() == nodes);
  return order;
}

}  // namespace

std::vector<uint32_t> topological_order(size_t nodes, const EdgeList& edges, std::span<const uint32_t> rank) {
  using Free = std::pair<uint32_t, uint32_t>;  // rank, node
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
  const auto add = [&](uint32_t node) { free.emplace(rank.empty() ? node : rank[node], node); };
  const auto take = [&]() -> std::optional<uint32_t> {
    if (free.empty()) return std::nullopt;
    const uint32_t node = free.top().second;
    free.pop();
    return node;
  };
  return order_by(nodes, edges, add, take);
}

std::optional<uint32_t> first_on_cycle(size_t nodes, const EdgeList& edges) {
  BitSet done(nodes);
  for (const uint32_t node : topological_order(nodes, edges)) done.insert(node);
  for (uint32_t node = 0; node < nodes; ++node)
    if (!done.contains(node)) return node;
  return std::nullopt;
}

std::vector<uint32_t> last_in_first_out_order(size_t nodes, const EdgeList& edges) {
  return order_by_arrival(nodes, edges, true);
}
std::vector<uint32_t> first_in_first_out_order(size_t nodes, const EdgeList& edges) {
  return order_by_arrival(nodes, edges, false);
}

Dag::Dag(size_t nodes, EdgeList edges) {
  for (const auto& [from, to] : edges) GP_CHECK(from < nodes && to < nodes && from != to);
  sort_unique(edges);
  fill_rows(nodes, edges, successor_start_, successors_);
  for (auto& [from, to] : edges) std::swap(from, to);
  std::ranges::sort(edges);
  fill_rows(nodes, edges, predecessor_start_, predecessors_);
}

EdgeList Dag::edges() const {
  EdgeList edges;
  for (uint32_t node = 0; node < size(); ++node)
    for (const uint32_t next : successors(node)) edges.emplace_back(node, next);
  return edges;
}

Dag chained(const Dag& dag, std::span<const uint32_t> order) {
  EdgeList edges = dag.edges();
  for (size_t i = 1; i < order.size(); ++i) edges.emplace_back(order[i - 1], order[i]);
  return Dag(dag.size(), std::move(edges));
}

BitRows ancestors_of(const Dag& dag) {
  BitRows rows(dag.size(), dag.size());
  for (const uint32_t node : first_in_first_out_order(dag.size(), dag.edges())) {
    rows.insert(node, node);
    for (const uint32_t from : dag.predecessors(node)) rows.merge(node, from);
  }
  return rows;
}

}  // namespace graphpipe
