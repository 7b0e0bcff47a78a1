#include "files/profile_builder.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "support/digraph.h"

namespace graphpipe::files {
namespace {

constexpr size_t kMaxLayers = 1'000'000;
constexpr size_t kMaxLayerProblems = 20;
// Larger than any machine's sums, small enough that sums of a million stay finite and exact comparisons make sense.
constexpr double kMaxOfAnything = 1e18;

bool is_price(double value) { return std::isfinite(value) && value >= 0 && value <= kMaxOfAnything; }

uint32_t number(LayerId id) { return static_cast<uint32_t>(id.index()); }

}  // namespace

class LayerChecker {
 public:
  explicit LayerChecker(const ProfileBuilder& built) : built_(built) {}

  Status run() {
    if (built_.layers_.empty()) add({}, "the profile has no layers", "check that the file is a profile of this format");
    if (built_.layers_.size() > kMaxLayers) add({}, text("more than ", kMaxLayers, " layers"), "use a coarser profile");
    if (!problems_.empty()) return problems_;
    check_edges();
    check_layers();
    if (problems_.empty()) check_acyclic();
    if (!problems_.empty()) return problems_;
    return Ok{};
  }

 private:
  void add(const ModelText& origin, std::string message, std::string hint) {
    if (problems_.size() < kMaxLayerProblems)
      problems_.push_back(
          {.code = Code::kBadProfile, .origin = origin, .message = std::move(message), .hint = std::move(hint)});
  }

  void price(const ModelText& layer, double value, std::string_view what) {
    if (!is_price(value))
      add(layer, text(what, " is not a number from 0 to 1e18"), "write a finite number that is not negative");
  }

  void check_edges() {
    readers_.resize(built_.layers_.size());
    for (const auto& edge : built_.edges_) {
      if (edge.from.index() >= built_.layers_.size() || edge.to.index() >= built_.layers_.size()) {
        add({}, "an edge names a layer that does not exist", "list the layer, or drop the edge");
        continue;
      }
      const ModelText& from = built_.layers_[edge.from].node.label;
      if (!readers_[edge.from].insert(edge.to).second)
        add(from, text("two edges lead to ", quoted(built_.layers_[edge.to].node.label)), "list each edge once");
      if (!is_price(edge.bytes)) add(from, "an edge's bytes are not a number from 0 to 1e18", "correct the size");
    }
  }

  void check_layers() {
    std::set<ModelText> ids;
    for (const LayerId id : built_.layer_ids()) {
      const ProfileBuilder::Layer& layer = built_.layers_[id];
      const ir::PlanNode& node = layer.node;
      if (!ids.insert(node.label).second) add(node.label, "two layers have this id", "give each layer its own id");
      price(node.label, node.forward.linear(), "the forward time");
      price(node.label, node.input_gradient.linear() + node.weight_gradient.linear(), "the backward time");
      price(node.label, layer.output_bytes, "the size of the output");
      price(node.label, layer.weight_bytes, "the size of the weights");
      price(node.label, node.host_transfer.linear(), "the time of a transfer");
      check_alternatives(id, node);
    }
  }

  void check_alternatives(LayerId id, const ir::PlanNode& node) {
    for (const ir::NodeAlternative& way : node.alternatives) {
      const double seconds =
          way.seconds.forward.linear() + way.seconds.input_gradient.linear() + way.seconds.weight_gradient.linear();
      for (const double value : {seconds, way.weight_bytes, way.kept_bytes, way.fixed_bytes})
        price(node.label, value, "a number of a variant");
      for (const auto& boundary : way.from) check_boundary(node, boundary, LayerId(boundary.neighbour.index()), id);
      for (const auto& boundary : way.to) check_boundary(node, boundary, id, LayerId(boundary.neighbour.index()));
    }
  }

  void check_boundary(const ir::PlanNode& node, const ir::NodeAlternative::Boundary& boundary, LayerId from,
                      LayerId to) {
    price(node.label, boundary.bytes, "a synchronisation size");
    if (from.index() >= built_.layers_.size() || !readers_[from].contains(to))
      add(node.label, "a synchronisation size names a layer that is not its neighbour", "name neighbours only");
  }

  void check_acyclic() {
    EdgeList edges;
    for (const auto& edge : built_.edges_) edges.emplace_back(number(edge.from), number(edge.to));
    if (const auto layer = first_on_cycle(built_.layers_.size(), edges))
      add(built_.layers_[LayerId(*layer)].node.label, "it is on or behind a cycle of edges", "the layers are acyclic");
  }

  const ProfileBuilder& built_;
  IdMap<LayerId, std::set<LayerId>> readers_;
  Diagnostics problems_;
};

class GraphWriter {
 public:
  GraphWriter(const ProfileBuilder& built, const IdSet<LayerId>& left_out) : built_(built), left_out_(left_out) {}

  ir::PlanGraph run() {
    number_nodes();
    for (const LayerId id : order_)
      for (const auto& price : {built_.layers_[id].node.input_gradient, built_.layers_[id].node.weight_gradient})
        trains_ = trains_ || price.linear() > 0;
    for (const LayerId id : order_) add_node(id);
    add_values();
    add_classes();
    for (const LayerId id : built_.layer_ids())
      if (!left_out_.contains(id)) graph_.file_order.nodes.push_back(node_of_[id]);
    for (const auto& edge : built_.edges_)
      if (is_kept(edge)) graph_.file_order.edges.emplace_back(node_of_[edge.from], node_of_[edge.to]);
    return std::move(graph_);
  }

 private:
  bool is_kept(const ProfileBuilder::Edge& edge) const {
    return !left_out_.contains(edge.from) && !left_out_.contains(edge.to);
  }

  void number_nodes() {
    EdgeList edges;
    for (const auto& edge : built_.edges_)
      if (is_kept(edge)) edges.emplace_back(number(edge.from), number(edge.to));
    node_of_.resize(built_.layers_.size());
    for (const uint32_t layer : topological_order(built_.layers_.size(), edges)) {
      if (left_out_.contains(LayerId(layer))) continue;
      node_of_[LayerId(layer)] = ir::PlanNodeId(order_.size());
      order_.emplace_back(layer);
    }
  }

  void add_node(LayerId id) {
    const ProfileBuilder::Layer& layer = built_.layers_[id];
    ir::PlanNode node = layer.node;
    node.has_backward = trains_;
    if (!trains_) node.stash_to_input_gradient = {};
    if (layer.weight_bytes > 0)
      node.weights = {graph_.weight_groups.push_back(
          {.bytes = whole_bytes(layer.weight_bytes), .trainable = trains_, .name = node.label})};
    for (ir::NodeAlternative& way : node.alternatives)
      for (auto* side : {&way.from, &way.to}) {
        std::erase_if(*side, [&](const auto& b) { return left_out_.contains(LayerId(b.neighbour.index())); });
        for (auto& boundary : *side) boundary.neighbour = node_of_[LayerId(boundary.neighbour.index())];
      }
    graph_.nodes.push_back(std::move(node));
  }

  /// A tensor for each size that the edges of a layer have: of equal sizes the file does not say whether they are one.
  void add_values() {
    IdMap<LayerId, std::map<double, std::vector<ir::PlanNodeId>>> sent(built_.layers_.size());
    for (const auto& edge : built_.edges_)
      if (is_kept(edge)) sent[edge.from][edge.bytes].push_back(node_of_[edge.to]);
    for (const LayerId id : order_) {
      if (sent[id].empty() && built_.layers_[id].output_bytes > 0) sent[id][built_.layers_[id].output_bytes];
      for (auto& [bytes, readers] : sent[id]) {
        ir::PlanValue value{.producer = node_of_[id], .readers = std::move(readers), .bytes = per_sample(bytes)};
        std::ranges::sort(value.readers);
        if (trains_ && !built_.layers_[id].node.is_backward && !value.readers.empty()) {
          value.gradient_bytes = value.bytes;
          value.gradient_readers = value.readers;
        }
        graph_.values.push_back(std::move(value));
      }
    }
  }

  void add_classes() {
    std::map<int64_t, std::vector<ir::PlanNodeId>> classes;
    for (const LayerId id : order_)
      if (const auto color = built_.layers_[id].color_class) classes[*color].push_back(node_of_[id]);
    for (auto& [color, members] : classes) graph_.colocated.push_back(std::move(members));
  }

  const ProfileBuilder& built_;
  const IdSet<LayerId>& left_out_;
  std::vector<LayerId> order_;
  IdMap<LayerId, ir::PlanNodeId> node_of_;
  bool trains_ = false;
  ir::PlanGraph graph_;
};

LayerId ProfileBuilder::add(Layer layer) { return layers_.push_back(std::move(layer)); }

IdMap<LayerId, ProfileBuilder::Neighbours> ProfileBuilder::neighbours() const {
  IdMap<LayerId, Neighbours> all(layers_.size());
  for (const Edge& edge : edges_) {
    all[edge.from].to.push_back(edge.to);
    all[edge.to].from.push_back(edge.from);
  }
  for (Neighbours& of_layer : all) {
    std::ranges::sort(of_layer.from);
    std::ranges::sort(of_layer.to);
  }
  return all;
}

Status ProfileBuilder::check() const { return LayerChecker(*this).run(); }

ir::PlanGraph ProfileBuilder::build(const IdSet<LayerId>& left_out) const { return GraphWriter(*this, left_out).run(); }

Bytes whole_bytes(double bytes) { return Bytes(std::llround(std::clamp(bytes, 0.0, 1e15))); }

void set_seconds(ir::PlanNode& node, double forward, double backward, double weight_bytes) {
  node.forward = per_sample(forward);
  node.input_gradient = per_sample(weight_bytes > 0 ? backward / 2 : backward);
  node.weight_gradient = per_sample(weight_bytes > 0 ? backward / 2 : 0);
}

}  // namespace graphpipe::files
