#pragma once
// Directed graphs as lists of edges between the numbers 0 .. nodes - 1, in linear time and without recursion. Connected
// components are in ir/connected_components.h.

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/bits.h"

namespace graphpipe {

/// From, to. Edges may repeat.
using EdgeList = std::vector<std::pair<uint32_t, uint32_t>>;

/// The nodes of `start` and all that they lead to, each once, in the order in which they are met. `neighbours(node,
/// visit)` calls `visit` with those that are one edge away; nodes are numbers, or ids (support/id.h).
template <typename Node, typename Neighbours>
std::vector<Node> reached_from(const std::vector<Node>& start, Neighbours neighbours) {
  std::vector<Node> found;
  BitSet seen;
  const auto visit = [&](Node node) {
    size_t number = 0;
    if constexpr (std::is_integral_v<Node>) number = node;
    else number = node.index();
    if (seen.insert(number)) found.push_back(node);
  };
  for (const Node node : start) visit(node);
  for (size_t i = 0; i < found.size(); ++i) neighbours(Node(found[i]), visit);
  return found;
}

/// Kahn's order: of the nodes whose predecessors are done the one with the smallest rank goes first, then the one with
/// the smallest number; without ranks their numbers are the ranks. Nodes on cycles and behind them are left out.
std::vector<uint32_t> topological_order(size_t nodes, const EdgeList& edges, std::span<const uint32_t> rank = {});

/// The smallest of the nodes on cycles and behind them; absent where there is no cycle.
std::optional<uint32_t> first_on_cycle(size_t nodes, const EdgeList& edges);

/// Kahn's order: of the nodes whose predecessors are done the one that became free last goes first, or first. Sources
/// become free by number, readers in the order of the edges. Needs: no cycle.
std::vector<uint32_t> last_in_first_out_order(size_t nodes, const EdgeList& edges);
std::vector<uint32_t> first_in_first_out_order(size_t nodes, const EdgeList& edges);

/// Neighbours of the nodes 0 .. size-1 of an acyclic graph in compressed rows.
class Dag {
 public:
  Dag() = default;
  /// Needs: ends below `nodes`; no cycle.
  Dag(size_t nodes, EdgeList edges);

  size_t size() const { return successor_start_.empty() ? 0 : successor_start_.size() - 1; }
  /// Ascending, each once.
  std::span<const uint32_t> successors(uint32_t node) const { return row(successor_start_, successors_, node); }
  std::span<const uint32_t> predecessors(uint32_t node) const { return row(predecessor_start_, predecessors_, node); }
  /// Sorted, each once.
  EdgeList edges() const;
  bool operator==(const Dag&) const = default;

 private:
  static std::span<const uint32_t> row(const std::vector<uint32_t>& start, const std::vector<uint32_t>& items,
                                       uint32_t node) {
    return std::span(items).subspan(start[node], start[node + 1] - start[node]);
  }
  std::vector<uint32_t> successor_start_, successors_, predecessor_start_, predecessors_;
};

/// The graph with an extra edge between neighbours of `order`.
Dag chained(const Dag& dag, std::span<const uint32_t> order);

/// By node those that lead to it, itself included. Takes memory with the square of the nodes.
BitRows ancestors_of(const Dag& dag);

}  // namespace graphpipe
