#include "partitioner/tarnawski/max_load_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "cost/fold.h"
#include "support/union_find.h"

namespace graphpipe::partitioner {
namespace {

/// Seconds under which a layer counts as free: a millionth of the milliseconds of the files.
constexpr double kFree = 1e-9;
/// A free layer with more readers than this is an attention mask or the like, which ties nothing together.
constexpr size_t kReadersOfMask = 16;

void add_tensors(const LayerGraph& graph, std::span<const uint32_t> node_of, MaxLoadGraph& out) {
  std::vector<std::set<uint32_t>> touching(graph.layers.size());
  for (const LayerEdge& edge : graph.edges) {
    touching[edge.from.index()].insert(node_of[edge.from.index()]);
    touching[edge.from.index()].insert(node_of[edge.to.index()]);
  }
  std::map<std::vector<uint32_t>, double> seconds;
  for (size_t layer = 0; layer < graph.layers.size(); ++layer) {
    const double transfer = graph.layers[LayerId(layer)].transfer_seconds;
    if (touching[layer].size() > 1 && transfer > 0)
      seconds[{touching[layer].begin(), touching[layer].end()}] += transfer;
  }
  for (const auto& [nodes, sum] : seconds) out.tensors.push_back({.seconds = sum, .nodes = nodes});
}

/// Without edges.
MaxLoadGraph with_nodes(const LayerGraph& graph, std::span<const uint32_t> node_of, size_t nodes) {
  MaxLoadGraph out;
  out.nodes.resize(nodes);
  for (uint32_t layer = 0; layer < graph.layers.size(); ++layer) {
    MaxLoadGraph::Node& node = out.nodes[node_of[layer]];
    const Layer& from = graph.layers[LayerId(layer)];
    node.accelerator += from.seconds();
    node.cpu += from.cpu_seconds;
    node.bytes += from.memory_bytes;
    node.on_accelerator = node.on_accelerator && from.on_accelerator;
    node.layers.push_back(layer);
  }
  add_tensors(graph, node_of, out);
  return out;
}

/// Classes are named by their first layer.
class Fuser {
 public:
  explicit Fuser(const LayerGraph& graph) : graph_(graph), groups_(graph.layers.size()) {
    std::map<int64_t, uint32_t> first_of;
    for (uint32_t layer = 0; layer < graph.layers.size(); ++layer)
      if (const auto color = graph.layers[LayerId(layer)].color_class)
        groups_.join(first_of.emplace(*color, layer).first->second, layer);
  }

  MaxLoadGraph run(Fusion fusion) {
    if (fusion == Fusion::kBiconnected) join_biconnected();
    mark_orphans();
    const std::vector<uint32_t> part = strongly_connected_parts(graph_.layers.size(), forward_edges());
    std::map<uint32_t, uint32_t> first_of;
    for (uint32_t layer = 0; layer < graph_.layers.size(); ++layer)
      groups_.join(first_of.emplace(part[groups_.find(layer)], layer).first->second, layer);
    join_free_layers();
    return build();
  }

 private:
  bool is_backward(LayerId id) const { return graph_.layers[id].is_backward; }
  uint32_t group(LayerId id) { return groups_.find(static_cast<uint32_t>(id.index())); }

  /// Of the graph whose nodes are the forward and the backward half of each class: the sources of the edges of each
  /// biconnected part become one class.
  void join_biconnected() {
    const auto half = [&](LayerId id) { return 2 * group(id) + (is_backward(id) ? 1 : 0); };
    std::map<LayerId, size_t> readers;
    for (const LayerEdge& edge : graph_.edges) ++readers[edge.from];
    DagEdges edges;
    for (const LayerEdge& edge : graph_.edges) {
      const bool is_mask =
          readers[edge.from] > kReadersOfMask && !is_backward(edge.from) && graph_.layers[edge.from].seconds() < kFree;
      if (!is_mask && half(edge.from) != half(edge.to)) edges.emplace_back(half(edge.from), half(edge.to));
    }
    const std::vector<uint32_t> part = biconnected_parts(2 * graph_.layers.size(), edges);
    std::map<uint32_t, uint32_t> first_of;
    for (size_t i = 0; i < edges.size(); ++i)
      groups_.join(first_of.emplace(part[i], edges[i].first / 2).first->second, edges[i].first / 2);
  }

  /// Layers of classes without a forward layer.
  void mark_orphans() {
    std::vector<bool> has_forward(graph_.layers.size(), false);
    for (const LayerId id : graph_.layer_ids())
      if (!is_backward(id)) has_forward[group(id)] = true;
    is_orphan_.resize(graph_.layers.size());
    for (const LayerId id : graph_.layer_ids()) is_orphan_[id] = !has_forward[group(id)];
  }

  /// Between classes, with backward edges at orphans turned round.
  DagEdges forward_edges() {
    DagEdges edges;
    for (const LayerEdge& edge : graph_.edges) {
      const uint32_t from = group(edge.from), to = group(edge.to);
      if (from == to) continue;
      if (!is_backward(edge.from) && !is_backward(edge.to)) edges.emplace_back(from, to);
      if (is_backward(edge.from) && is_backward(edge.to) && (is_orphan_[edge.from] || is_orphan_[edge.to]))
        edges.emplace_back(to, from);
    }
    return edges;
  }

  /// Joins classes that take no time, meet no backward layer and have one neighbour, until there is none.
  void join_free_layers() {
    std::vector<double> seconds(graph_.layers.size(), 0);
    std::vector<std::set<uint32_t>> neighbours(graph_.layers.size());
    std::vector<bool> meets_backward(graph_.layers.size(), false);
    for (const LayerId id : graph_.layer_ids())
      seconds[group(id)] += std::max(graph_.layers[id].seconds(), graph_.layers[id].cpu_seconds);
    for (const LayerEdge& edge : graph_.edges)
      if (is_backward(edge.from) != is_backward(edge.to))
        meets_backward[group(is_backward(edge.from) ? edge.to : edge.from)] = true;
    for (const auto& [from, to] : forward_edges()) {
      neighbours[from].insert(to);
      neighbours[to].insert(from);
    }
    std::vector<uint32_t> open;
    for (uint32_t node = 0; node < graph_.layers.size(); ++node)
      if (groups_.find(node) == node) open.push_back(node);
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
    std::vector<uint32_t> node_of(graph_.layers.size());
    uint32_t nodes = 0;
    for (uint32_t layer = 0; layer < graph_.layers.size(); ++layer)
      node_of[layer] = groups_.find(layer) == layer ? nodes++ : node_of[groups_.find(layer)];
    MaxLoadGraph out = with_nodes(graph_, node_of, nodes);
    for (const auto& [from, to] : forward_edges()) out.edges.emplace_back(node_of[from], node_of[to]);
    sort_by_class(out);
    return out;
  }

  /// The original numbers what it fuses by class, layers without one last; its linear order follows these numbers.
  void sort_by_class(MaxLoadGraph& out) const {
    const auto number = [&](const std::pair<uint32_t, uint32_t>& edge) {
      const uint32_t first = out.nodes[edge.second].layers.front();
      const auto color = graph_.layers[LayerId(first)].color_class;
      return color ? std::pair(0, *color) : std::pair(1, static_cast<int64_t>(first));
    };
    std::ranges::stable_sort(out.edges, {}, number);
  }

  const LayerGraph& graph_;
  UnionFind<> groups_;
  IdMap<LayerId, bool> is_orphan_;
};

/// The layers as a plan graph that says only what belongs together.
ir::PlanGraph without_prices(const LayerGraph& graph) {
  ir::PlanGraph out;
  std::map<int64_t, std::vector<ir::PlanNodeId>> classes;
  for (const LayerId id : graph.layer_ids()) {
    const ir::PlanNodeId node = out.nodes.push_back({.is_backward = graph.layers[id].is_backward});
    out.file_order.nodes.push_back(node);
    out.values.push_back({.producer = node, .readers = {}});
    if (const auto color = graph.layers[id].color_class) classes[*color].push_back(node);
  }
  for (const LayerEdge& edge : graph.edges)
    out.values[ir::PlanValueId(edge.from.index())].readers.emplace_back(edge.to.index());
  for (const auto& [color, members] : classes) out.colocated.push_back(members);
  return out;
}

}  // namespace

MaxLoadGraph fuse_layers(const LayerGraph& graph, Fusion fusion) { return Fuser(graph).run(fusion); }

MaxLoadGraph fuse_for_schedules(const LayerGraph& graph) {
  const cost::FoldedGraph folded = cost::fold_backward(without_prices(graph));
  std::vector<uint32_t> node_of;
  for (const ir::PlanNodeId node : folded.node_of) node_of.push_back(static_cast<uint32_t>(node.index()));
  MaxLoadGraph out = with_nodes(graph, node_of, folded.graph.nodes.size());
  for (const ir::PlanValue& value : folded.graph.values)
    for (const ir::PlanNodeId reader : value.readers)
      out.edges.emplace_back(static_cast<uint32_t>(value.producer.index()), static_cast<uint32_t>(reader.index()));
  return out;
}

}  // namespace graphpipe::partitioner
