#pragma once
// Layers in plain terms, for tests that write down what a planner's terms say without the code that they test, and the
// planners of other projects asked for plans of them.

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "partitioner/cost_models/check_unit_plan.h"
#include "partitioner/cost_models/plan_price.h"
#include "partitioner/cost_models/unit_request.h"
#include "support/digraph.h"

namespace graphpipe::tests {

using LayerId = Id<struct LayerTag>;

/// Extra bytes of a collective where the edge to `neighbour` is cut.
struct LayerSync {
  LayerId neighbour;
  double bytes = 0;
};

struct LayerVariant {
  double seconds = 0;
  double weight_bytes = 0;
  double memory_per_item = 0, memory_fixed = 0;
  std::vector<LayerSync> sync_from, sync_to;
};

struct LayerDegree {
  int degree = 1;
  std::vector<LayerVariant> variants;
};

struct Layer {
  ModelText id, label;
  double forward_seconds = 0, backward_seconds = 0;
  double seconds() const { return forward_seconds + backward_seconds; }
  /// At least those of the edges.
  double output_bytes = 0, weight_bytes = 0;
  std::vector<LayerDegree> degrees;
  double cpu_seconds = 0;
  bool on_accelerator = true;
  double memory_bytes = 0, transfer_seconds = 0;
  bool is_backward = false;
  std::optional<int64_t> color_class;
};

struct LayerEdge {
  LayerId from, to;
  double bytes = 0;
};

struct LayerTable {
  IdMap<LayerId, Layer> layers;
  std::vector<LayerEdge> edges;
  double time_unit_seconds = 1;
  IdRange<LayerId> layer_ids() const { return ids<LayerId>(layers.size()); }
};

/// A stage as tests write it down: `replicas` times `degree` devices.
struct LayerStage {
  std::vector<LayerId> layers;
  std::vector<int> devices;
  int replicas = 1, degree = 1;
  std::vector<int> variants;
  bool recompute = false;
  bool operator==(const LayerStage&) const = default;
};

struct LayerCut {
  std::vector<LayerStage> stages;
  bool operator==(const LayerCut&) const = default;
};

/// The layers as a profile of a file that lists them in this order: row i is layer i.
class PlanGraphOfLayers {
 public:
  explicit PlanGraphOfLayers(const LayerTable& layers) : layers_(layers) {
    EdgeList edges;
    for (const LayerEdge& edge : layers.edges) edges.emplace_back(number(edge.from), number(edge.to));
    const std::vector<uint32_t> order = topological_order(layers.layers.size(), edges);
    graph_.file_order.nodes.resize(order.size());
    for (uint32_t i = 0; i < order.size(); ++i) graph_.file_order.nodes[order[i]] = ir::PlanNodeId(i);
    for (const uint32_t layer : order) add(layers.layers[LayerId(layer)]);
    std::map<int64_t, std::vector<ir::PlanNodeId>> classes;
    for (const uint32_t layer : order)
      if (const auto color = layers.layers[LayerId(layer)].color_class)
        classes[*color].push_back(node_of(LayerId(layer)));
    for (const auto& [color, members] : classes) graph_.colocated.push_back(members);
    for (const LayerEdge& edge : layers.edges) {
      graph_.file_order.edges.emplace_back(node_of(edge.from), node_of(edge.to));
      graph_.values.push_back(
          {.producer = node_of(edge.from), .readers = {node_of(edge.to)}, .bytes = per_unit(edge.bytes)});
    }
    for (const LayerId id : layers.layer_ids())
      graph_.values.push_back(
          {.producer = node_of(id), .readers = {}, .bytes = per_unit(layers.layers[id].output_bytes)});
  }

  ir::PlanGraph take() { return std::move(graph_); }

 private:
  static uint32_t number(LayerId id) { return static_cast<uint32_t>(id.index()); }
  static ir::SampleFunction per_unit(double value) { return ir::SampleFunction::polynomial(0, value); }
  ir::PlanNodeId node_of(LayerId id) const { return graph_.file_order.nodes[id.index()]; }

  void add(const Layer& layer) {
    ir::PlanNode node{.label = layer.id, .description = layer.label};
    node.forward = per_unit(layer.forward_seconds);
    node.input_gradient = per_unit(layer.backward_seconds);
    if (layer.cpu_seconds > 0)
      node.by_kind = {{.forward = node.forward, .input_gradient = node.input_gradient, .weight_gradient = {}},
                      {.forward = per_unit(layer.cpu_seconds), .input_gradient = {}, .weight_gradient = {}}};
    if (!layer.on_accelerator) node.refused_kinds = {0};
    node.is_backward = layer.is_backward;
    node.host_transfer = per_unit(layer.transfer_seconds);
    node.buffer_bytes = Bytes(static_cast<int64_t>(layer.memory_bytes));
    if (layer.weight_bytes > 0)
      node.weights = {graph_.weight_groups.push_back(
          {.bytes = Bytes(static_cast<int64_t>(layer.weight_bytes)), .trainable = true, .name = layer.id})};
    for (const LayerDegree& degree : layer.degrees)
      for (const LayerVariant& variant : degree.variants) node.alternatives.push_back(alternative(degree, variant));
    graph_.nodes.push_back(std::move(node));
  }

  ir::NodeAlternative alternative(const LayerDegree& degree, const LayerVariant& variant) const {
    ir::NodeAlternative way;
    way.degree = degree.degree;
    way.seconds.forward = per_unit(variant.seconds);
    way.weight_bytes = variant.weight_bytes;
    way.kept_bytes = variant.memory_per_item;
    way.fixed_bytes = variant.memory_fixed;
    for (const LayerSync& sync : variant.sync_from) way.from.push_back({node_of(sync.neighbour), sync.bytes});
    for (const LayerSync& sync : variant.sync_to) way.to.push_back({node_of(sync.neighbour), sync.bytes});
    return way;
  }

  const LayerTable& layers_;
  ir::PlanGraph graph_;
};

/// What planners are asked for, of layers. Its `prices` are filled in by plan_layers.
struct LayerRequest : partitioner::UnitRequest {
  const LayerTable* graph = nullptr;
};

/// Layers as planners see them.
struct PricedLayers {
  explicit PricedLayers(const LayerTable& layers)
      : graph(PlanGraphOfLayers(layers).take()), prices(partitioner::unit_prices(graph)) {
    prices.time_unit_seconds = layers.time_unit_seconds;
  }
  PricedLayers(const PricedLayers&) = delete;
  PricedLayers& operator=(const PricedLayers&) = delete;

  /// The request with these prices.
  partitioner::UnitRequest asked(const LayerRequest& request) const {
    partitioner::UnitRequest out = request;
    out.prices = &prices;
    return out;
  }

  ir::Assignment encode(const LayerCut& plan) const {
    ir::Assignment out;
    for (const LayerStage& stage : plan.stages) {
      std::vector<uint32_t> rows;
      for (const LayerId layer : stage.layers) rows.push_back(static_cast<uint32_t>(layer.index()));
      ir::StageChoice choice{.degree = stage.degree, .recompute = stage.recompute};
      for (size_t i = 0; i < stage.devices.size(); i += static_cast<size_t>(stage.degree))
        choice.devices.emplace_back(static_cast<size_t>(stage.devices[i]));
      add_stage(prices, rows, std::move(choice), stage.variants, out);
    }
    return out;
  }

  /// Devices of all copies of a stage, replicas of the innermost one.
  LayerCut decode(const partitioner::UnitAnswer& answer) const {
    LayerCut plan;
    const auto rows = layers_of_stages(prices, answer.plan);
    for (size_t s = 0; s < rows.size(); ++s) {
      const ir::StageChoice& choice = answer.plan.choice[ir::StageId(s)];
      LayerStage stage{.degree = choice.degree, .recompute = choice.recompute};
      stage.replicas = static_cast<int>(choice.devices.size()) / partitioner::copies_around(answer.groups, s);
      for (const ir::DeviceId device : choice.devices)
        for (int i = 0; i < choice.degree; ++i) stage.devices.push_back(static_cast<int>(device.index()) + i);
      for (const uint32_t row : rows[s]) {
        stage.layers.emplace_back(row);
        if (!answer.plan.alternative.empty())
          stage.variants.push_back(answer.plan.alternative[prices.nodes[row]] -
                                   partitioner::alternative_number(prices.node(row), choice.degree, 0));
      }
      plan.stages.push_back(std::move(stage));
    }
    return plan;
  }

  ir::PlanGraph graph;
  partitioner::UnitPrices prices;
};

/// An answer with its plan in terms of layers.
struct LayerAnswer : partitioner::UnitAnswer {
  LayerCut plan;
};

inline Result<LayerAnswer> plan_layers(const partitioner::PlannerEntry& planner, const LayerRequest& request) {
  const PricedLayers layers(*request.graph);
  const Result<partitioner::UnitAnswer> found = search_unit(planner, layers.asked(request));
  if (!found.ok()) return found.problems();
  LayerAnswer answer;
  static_cast<partitioner::UnitAnswer&>(answer) = *found;
  answer.plan = layers.decode(*found);
  return answer;
}

inline partitioner::UnitAnswer encoded(const PricedLayers& layers, const LayerAnswer& answer) {
  partitioner::UnitAnswer out = answer;
  out.plan = layers.encode(answer.plan);
  return out;
}

inline Diagnostics check_layer_cut(const LayerRequest& request, const LayerAnswer& answer) {
  const PricedLayers layers(*request.graph);
  return check_unit_plan(layers.asked(request), encoded(layers, answer));
}

inline double recomputed_objective(const LayerRequest& request, const LayerAnswer& answer) {
  const PricedLayers layers(*request.graph);
  return partitioner::recomputed_objective(layers.asked(request), encoded(layers, answer));
}

inline partitioner::PlanPrice price_layer_cut(const LayerTable& graph, const LayerCut& plan,
                                              const partitioner::MachineLevels& machine,
                                              const partitioner::CostModel& model) {
  const PricedLayers layers(graph);
  return price_plan(layers.prices, layers.encode(plan), machine, model);
}

}  // namespace graphpipe::tests
