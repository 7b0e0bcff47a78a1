#include "partitioner/tarnawski/max_load_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "cost/fold.h"
#include "ir/connected_components.h"
#include "support/union_find.h"

namespace graphpipe::partitioner {
namespace {

/// Seconds under which a layer counts as free: a millionth of the milliseconds of the files.
constexpr double kFree = 1e-9;
/// A free layer with more readers than this is an attention mask or the like, which ties nothing together.
constexpr size_t kReadersOfMask = 16;

void add_tensors(const UnitPrices& prices, std::span<const uint32_t> node_of, MaxLoadGraph& out) {
  std::vector<std::set<uint32_t>> touching(prices.size());
  for (const auto& [from, to] : prices.edges) {
    touching[from].insert(node_of[from]);
    touching[from].insert(node_of[to]);
  }
  std::map<std::vector<uint32_t>, double> seconds;
  for (uint32_t layer = 0; layer < prices.size(); ++layer) {
    const double transfer = prices.transfer_seconds[layer];
    if (touching[layer].size() > 1 && transfer > 0)
      seconds[{touching[layer].begin(), touching[layer].end()}] += transfer;
  }
  for (const auto& [nodes, sum] : seconds) out.tensors.push_back({.seconds = sum, .nodes = nodes});
}

/// The graph without its edges.
MaxLoadGraph with_nodes(const UnitPrices& prices, std::span<const uint32_t> node_of, size_t nodes) {
  MaxLoadGraph out;
  out.nodes.resize(nodes);
  for (uint32_t layer = 0; layer < prices.size(); ++layer) {
    MaxLoadGraph::Node& node = out.nodes[node_of[layer]];
    node.accelerator += prices.seconds[layer];
    node.cpu += prices.cpu_seconds[layer];
    node.bytes += prices.memory_bytes[layer];
    node.on_accelerator = node.on_accelerator && prices.on_accelerator(layer);
    node.layers.push_back(layer);
  }
  add_tensors(prices, node_of, out);
  return out;
}

/// The colocated set of each layer, -1 without.
std::vector<int64_t> classes_of(const UnitPrices& prices) {
  std::vector<int64_t> class_of(prices.size(), -1);
  for (size_t i = 0; i < prices.graph->colocated.size(); ++i)
    for (const ir::PlanNodeId node : prices.graph->colocated[i])
      class_of[prices.layer_of[node]] = static_cast<int64_t>(i);
  return class_of;
}

/// Classes are named by their first layer.
class Fuser {
 public:
  explicit Fuser(const UnitPrices& prices) : prices_(prices), class_of_(classes_of(prices)), groups_(prices.size()) {
    std::map<int64_t, uint32_t> first_of;
    for (uint32_t layer = 0; layer < prices.size(); ++layer)
      if (class_of_[layer] >= 0) groups_.join(first_of.emplace(class_of_[layer], layer).first->second, layer);
  }

  MaxLoadGraph run(Fusion fusion) {
    if (fusion == Fusion::kBiconnected) join_biconnected();
    mark_orphans();
    const std::vector<uint32_t> part = ir::strongly_connected_components(prices_.size(), forward_edges());
    std::map<uint32_t, uint32_t> first_of;
    for (uint32_t layer = 0; layer < prices_.size(); ++layer)
      groups_.join(first_of.emplace(part[groups_.find(layer)], layer).first->second, layer);
    join_free_nodes();
    return build();
  }

 private:
  bool is_backward(uint32_t layer) const { return prices_.is_backward(layer); }
  uint32_t group(uint32_t layer) { return groups_.find(layer); }

  /// Takes the graph of the forward and backward halves of the classes, and joins the sources of the edges of each
  /// biconnected component to one class.
  void join_biconnected() {
    const auto half = [&](uint32_t layer) { return 2 * group(layer) + (is_backward(layer) ? 1 : 0); };
    std::vector<size_t> readers(prices_.size(), 0);
    for (const auto& [from, to] : prices_.edges) ++readers[from];
    EdgeList edges;
    for (const auto& [from, to] : prices_.edges) {
      const bool is_mask = readers[from] > kReadersOfMask && !is_backward(from) && prices_.seconds[from] < kFree;
      if (!is_mask && half(from) != half(to)) edges.emplace_back(half(from), half(to));
    }
    const std::vector<uint32_t> part = ir::biconnected_components(2 * size_t{prices_.size()}, edges);
    std::map<uint32_t, uint32_t> first_of;
    for (size_t i = 0; i < edges.size(); ++i)
      groups_.join(first_of.emplace(part[i], edges[i].first / 2).first->second, edges[i].first / 2);
  }

  /// Marks the layers of classes without a forward node.
  void mark_orphans() {
    std::vector<bool> has_forward(prices_.size(), false);
    for (uint32_t layer = 0; layer < prices_.size(); ++layer)
      if (!is_backward(layer)) has_forward[group(layer)] = true;
    for (uint32_t layer = 0; layer < prices_.size(); ++layer) is_orphan_.push_back(!has_forward[group(layer)]);
  }

  /// Between classes, with backward edges at orphans turned round.
  EdgeList forward_edges() {
    EdgeList edges;
    for (const auto& [reads, read] : prices_.edges) {
      const uint32_t from = group(reads), to = group(read);
      if (from == to) continue;
      if (!is_backward(reads) && !is_backward(read)) edges.emplace_back(from, to);
      if (is_backward(reads) && is_backward(read) && (is_orphan_[reads] || is_orphan_[read]))
        edges.emplace_back(to, from);
    }
    return edges;
  }

  /// Joins each class that takes no time, meets no backward node and has one neighbour to this neighbour, until no such
  /// class is left.
  void join_free_nodes() {
    std::vector<double> seconds(prices_.size(), 0);
    std::vector<std::set<uint32_t>> neighbours(prices_.size());
    std::vector<bool> meets_backward(prices_.size(), false);
    for (uint32_t layer = 0; layer < prices_.size(); ++layer)
      seconds[group(layer)] += std::max(prices_.seconds[layer], prices_.cpu_seconds[layer]);
    for (const auto& [from, to] : prices_.edges)
      if (is_backward(from) != is_backward(to)) meets_backward[group(is_backward(from) ? to : from)] = true;
    for (const auto& [from, to] : forward_edges()) {
      neighbours[from].insert(to);
      neighbours[to].insert(from);
    }
    std::vector<uint32_t> open;
    for (uint32_t layer = 0; layer < prices_.size(); ++layer)
      if (groups_.find(layer) == layer) open.push_back(layer);
    for (size_t i = 0; i < open.size(); ++i) {
      const uint32_t node = open[i];
      if (seconds[node] >= kFree || meets_backward[node] || neighbours[node].size() != 1) continue;
      const uint32_t taker = *neighbours[node].begin();
      groups_.join(node, taker);
      neighbours[node].clear();
      neighbours[taker].erase(node);
      open.push_back(taker);
    }
  }

  MaxLoadGraph build() {
    std::vector<uint32_t> node_of(prices_.size());
    uint32_t nodes = 0;
    for (uint32_t layer = 0; layer < prices_.size(); ++layer)
      node_of[layer] = groups_.find(layer) == layer ? nodes++ : node_of[groups_.find(layer)];
    MaxLoadGraph out = with_nodes(prices_, node_of, nodes);
    for (const auto& [from, to] : forward_edges()) out.edges.emplace_back(node_of[from], node_of[to]);
    sort_by_class(out);
    return out;
  }

  /// The original numbers what it fuses by class, nodes without one last; its linear order follows these numbers.
  void sort_by_class(MaxLoadGraph& out) const {
    const auto number = [&](const std::pair<uint32_t, uint32_t>& edge) {
      const uint32_t first = out.nodes[edge.second].layers.front();
      return class_of_[first] >= 0 ? std::pair(0, class_of_[first]) : std::pair(1, int64_t{first});
    };
    std::ranges::stable_sort(out.edges, {}, number);
  }

  const UnitPrices& prices_;
  const std::vector<int64_t> class_of_;
  UnionFind<> groups_;
  std::vector<bool> is_orphan_;
};

}  // namespace

MaxLoadGraph fuse_nodes(const UnitPrices& prices, Fusion fusion) { return Fuser(prices).run(fusion); }

MaxLoadGraph fuse_for_schedules(const UnitPrices& prices) {
  const cost::FoldedGraph folded = cost::fold_backward(*prices.graph);
  std::vector<uint32_t> node_of;
  for (const ir::PlanNodeId node : prices.nodes) node_of.push_back(static_cast<uint32_t>(folded.node_of[node].index()));
  MaxLoadGraph out = with_nodes(prices, node_of, folded.graph.nodes.size());
  for (const ir::PlanValue& value : folded.graph.values)
    for (const ir::PlanNodeId reader : value.readers)
      out.edges.emplace_back(static_cast<uint32_t>(value.producer.index()), static_cast<uint32_t>(reader.index()));
  return out;
}

}  // namespace graphpipe::partitioner
