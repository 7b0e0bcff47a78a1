#include "ir/layer_graph.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <set>

namespace graphpipe::ir {

namespace {

constexpr size_t kMaxLayers = 1'000'000;
constexpr size_t kMaxProblems = 20;
// Larger than any machine's sums, small enough that sums of a million stay finite and exact comparisons make sense.
constexpr double kMaxOfAnything = 1e18;

bool is_price(double value) { return std::isfinite(value) && value >= 0 && value <= kMaxOfAnything; }

class LayerGraphVerifier {
 public:
  explicit LayerGraphVerifier(const LayerGraph& graph) : graph_(graph) {}

  Status run() {
    if (graph_.layers.empty()) add({}, "the profile has no layers", "check that the file is a profile of this format");
    if (graph_.layers.size() > kMaxLayers) add({}, text("more than ", kMaxLayers, " layers"), "use a coarser profile");
    if (!problems_.empty()) return problems_;
    check_edges();
    check_layers();
    if (problems_.empty()) check_acyclic();
    if (!problems_.empty()) return problems_;
    return Ok{};
  }

 private:
  void add(const ModelText& origin, std::string message, std::string hint) {
    if (problems_.size() < kMaxProblems)
      problems_.push_back(
          {.code = Code::kBadProfile, .origin = origin, .message = std::move(message), .hint = std::move(hint)});
  }

  void price(const Layer& layer, double value, std::string_view what) {
    if (!is_price(value))
      add(layer.id, text(what, " is not a number from 0 to 1e18"), "write a finite number that is not negative");
  }

  void check_edges() {
    neighbours_.resize(graph_.layers.size());
    for (const LayerEdge& edge : graph_.edges) {
      if (edge.from.index() >= graph_.layers.size() || edge.to.index() >= graph_.layers.size()) {
        add({}, "an edge names a layer that does not exist", "list the layer, or drop the edge");
        continue;
      }
      const ModelText& from = graph_.layers[edge.from].id;
      if (!neighbours_[edge.from].insert(edge.to).second)
        add(from, text("two edges lead to ", quoted(graph_.layers[edge.to].id)), "list each edge once");
      if (!is_price(edge.bytes)) add(from, "an edge's bytes are not a number from 0 to 1e18", "correct the size");
    }
  }

  void check_layers() {
    std::set<ModelText> ids;
    for (const LayerId id : graph_.layer_ids()) {
      const Layer& layer = graph_.layers[id];
      if (!ids.insert(layer.id).second) add(layer.id, "two layers have this id", "give each layer its own id");
      price(layer, layer.forward_seconds, "the forward time");
      price(layer, layer.backward_seconds, "the backward time");
      price(layer, layer.output_bytes, "the size of the output");
      price(layer, layer.weight_bytes, "the size of the weights");
      price(layer, layer.cpu_seconds, "the CPU time");
      price(layer, layer.memory_bytes, "the memory");
      price(layer, layer.transfer_seconds, "the time of a transfer");
      check_degrees(id);
    }
  }

  void check_degrees(LayerId id) {
    const Layer& layer = graph_.layers[id];
    int before = 0;
    for (const LayerDegree& degree : layer.degrees) {
      if (degree.degree <= before) add(layer.id, "its degrees are not ascending from 1", "sort them, each once");
      if (degree.variants.empty()) add(layer.id, text("no variant at degree ", degree.degree), "drop the degree");
      before = degree.degree;
      for (const LayerVariant& variant : degree.variants) {
        for (const double value :
             {variant.seconds, variant.weight_bytes, variant.memory_per_item, variant.memory_fixed})
          price(layer, value, "a number of a variant");
        for (const LayerSync& sync : variant.sync_from) check_sync(id, sync, sync.neighbour, id);
        for (const LayerSync& sync : variant.sync_to) check_sync(id, sync, id, sync.neighbour);
      }
    }
  }

  void check_sync(LayerId id, const LayerSync& sync, LayerId from, LayerId to) {
    const Layer& layer = graph_.layers[id];
    price(layer, sync.bytes, "a synchronisation size");
    if (from.index() >= graph_.layers.size() || !neighbours_[from].contains(to))
      add(layer.id, "a synchronisation size names a layer that is not its neighbour", "name neighbours only");
  }

  void check_acyclic() {
    const LayerAdjacency adjacency = adjacency_of(graph_);
    if (adjacency.order.size() == graph_.layers.size()) return;
    IdSet<LayerId> done(graph_.layers.size());
    for (const LayerId id : adjacency.order) done.insert(id);
    for (const LayerId id : graph_.layer_ids())
      if (!done.contains(id))
        return add(graph_.layers[id].id, "it is on or behind a cycle of edges", "a layer graph is acyclic");
  }

  const LayerGraph& graph_;
  IdMap<LayerId, std::set<LayerId>> neighbours_;
  Diagnostics problems_;
};

}  // namespace

std::string_view name_of(LayerSource source) {
  switch (source) {
    case LayerSource::kPipeDream:
      return "pipedream";
    case LayerSource::kPiper:
      return "piper";
    case LayerSource::kDnnPartitioning:
      return "dnn-partitioning";
    case LayerSource::kModel:
      return "model";
  }
  return "";
}

LayerAdjacency adjacency_of(const LayerGraph& graph) {
  LayerAdjacency out;
  out.predecessors.resize(graph.layers.size());
  out.successors.resize(graph.layers.size());
  IdMap<LayerId, size_t> waiting(graph.layers.size(), 0);
  for (const LayerEdge& edge : graph.edges) {
    out.predecessors[edge.to].push_back(edge.from);
    out.successors[edge.from].push_back(edge.to);
    ++waiting[edge.to];
  }
  std::priority_queue<LayerId, std::vector<LayerId>, std::greater<>> free;
  for (const LayerId id : graph.layer_ids())
    if (waiting[id] == 0) free.push(id);
  out.order.reserve(graph.layers.size());
  while (!free.empty()) {
    const LayerId id = free.top();
    free.pop();
    out.order.push_back(id);
    for (const LayerId next : out.successors[id])
      if (--waiting[next] == 0) free.push(next);
  }
  return out;
}

Status verify_layer_graph(const LayerGraph& graph) { return LayerGraphVerifier(graph).run(); }

LayerGraph without_layers(const LayerGraph& graph, const IdSet<LayerId>& dropped, std::vector<LayerId>* kept) {
  LayerGraph out;
  out.source = graph.source;
  out.defaults = graph.defaults;
  out.time_unit_seconds = graph.time_unit_seconds;
  out.left_out = graph.left_out;
  IdMap<LayerId, LayerId> renamed(graph.layers.size());
  if (kept != nullptr) kept->clear();
  for (const LayerId id : graph.layer_ids()) {
    if (dropped.contains(id)) continue;
    renamed[id] = out.layers.push_back(graph.layers[id]);
    if (kept != nullptr) kept->push_back(id);
  }
  for (const LayerEdge& edge : graph.edges)
    if (!dropped.contains(edge.from) && !dropped.contains(edge.to))
      out.edges.push_back({.from = renamed[edge.from], .to = renamed[edge.to], .bytes = edge.bytes});
  const auto rename = [&](std::vector<LayerSync>& syncs) {
    std::erase_if(syncs, [&](const LayerSync& sync) { return dropped.contains(sync.neighbour); });
    for (LayerSync& sync : syncs) sync.neighbour = renamed[sync.neighbour];
  };
  for (Layer& layer : out.layers)
    for (LayerDegree& degree : layer.degrees)
      for (LayerVariant& variant : degree.variants) {
        rename(variant.sync_from);
        rename(variant.sync_to);
      }
  return out;
}

}  // namespace graphpipe::ir
