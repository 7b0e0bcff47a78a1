#include "partitioner/cost_models/layer_view.h"

#include <algorithm>
#include <map>

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;

double seconds_of(const ir::PassSeconds& price) {
  const double backward = price.input_gradient.at(1.0) + price.weight_gradient.at(1.0);
  return price.forward.at(1.0) + backward;
}

LayerVariant variant_of(const ir::PlanGraph& graph, const ir::PlanNode& node, Samples samples, double weight_bytes) {
  LayerVariant variant;
  variant.name = ModelText("vanilla");
  variant.seconds = node.forward.at(samples) + node.input_gradient.at(samples) + node.weight_gradient.at(samples);
  variant.weight_bytes = weight_bytes;
  variant.memory_per_item = node.stash_to_input_gradient.at(samples);
  variant.memory_fixed = weight_bytes * (2 + graph.optimizer_state_per_weight_byte) +
                         static_cast<double>(node.buffer_bytes.count) + node.workspace.at(samples);
  return variant;
}

/// The layers as a profile lists them.
class ProfileView {
 public:
  explicit ProfileView(const ir::ImportedProfile& profile) : graph_(profile.graph) {
    out_.source = profile.format == ir::ProfileFormat::kPiper       ? LayerSource::kPiper
                  : profile.format == ir::ProfileFormat::kPipeDream ? LayerSource::kPipeDream
                                                                    : LayerSource::kDnnPartitioning;
    out_.time_unit_seconds = profile.time_unit_seconds;
  }

  LayerGraph run() {
    layer_of_.resize(graph_.nodes.size());
    for (const PlanNodeId id : graph_.file_order.nodes) layer_of_[id] = out_.layers.push_back({});
    for (const PlanNodeId id : graph_.node_ids()) out_.layers[layer_of_[id]] = layer(graph_.nodes[id]);
    for (size_t color = 0; color < graph_.colocated.size(); ++color)
      for (const PlanNodeId id : graph_.colocated[color])
        out_.layers[layer_of_[id]].color_class = static_cast<int64_t>(color);
    add_edges();
    return std::move(out_);
  }

 private:
  Layer layer(const ir::PlanNode& node) const {
    Layer out{.id = node.label, .label = node.description, .is_backward = node.is_backward};
    out.forward_seconds = node.forward.at(1.0);
    out.backward_seconds = node.input_gradient.at(1.0) + node.weight_gradient.at(1.0);
    for (const ir::WeightGroupId group : node.weights)
      out.weight_bytes += static_cast<double>(graph_.weight_groups[group].bytes.count);
    out.on_accelerator = node.refused_kinds.empty();
    if (node.by_kind.size() > 1) out.cpu_seconds = seconds_of(node.by_kind[1]);
    if (out_.source == LayerSource::kDnnPartitioning) {
      out.memory_bytes = static_cast<double>(node.buffer_bytes.count);
      out.transfer_seconds = node.host_transfer.at(1.0);
    }
    add_degrees(node, out);
    return out;
  }

  void add_degrees(const ir::PlanNode& node, Layer& out) const {
    for (const ir::NodeAlternative& way : node.alternatives) {
      if (out.degrees.empty() || out.degrees.back().degree != way.degree) out.degrees.push_back({.degree = way.degree});
      LayerVariant variant{.name = way.name,
                           .seconds = seconds_of(way.seconds),
                           .weight_bytes = way.weight_bytes,
                           .memory_per_item = way.kept_bytes,
                           .memory_fixed = way.fixed_bytes};
      for (const auto& boundary : way.from)
        variant.sync_from.push_back({.neighbour = layer_of_[boundary.neighbour], .bytes = boundary.bytes});
      for (const auto& boundary : way.to)
        variant.sync_to.push_back({.neighbour = layer_of_[boundary.neighbour], .bytes = boundary.bytes});
      out.degrees.back().variants.push_back(std::move(variant));
    }
    if (out.degrees.empty()) return;
    out.forward_seconds = out.degrees.front().variants.front().seconds;
    out.backward_seconds = 0;
  }

  void add_edges() {
    std::map<std::pair<PlanNodeId, PlanNodeId>, double> bytes;
    for (const ir::PlanValue& value : graph_.values) {
      const double size = value.bytes.at(1.0);
      double& output = out_.layers[layer_of_[value.producer]].output_bytes;
      output = std::max(output, size);
      for (const PlanNodeId reader : value.readers) bytes[{value.producer, reader}] = size;
    }
    for (const auto& edge : graph_.file_order.edges)
      out_.edges.push_back({.from = layer_of_[edge.first], .to = layer_of_[edge.second], .bytes = bytes.at(edge)});
  }

  const ir::PlanGraph& graph_;
  IdMap<PlanNodeId, LayerId> layer_of_;
  LayerGraph out_;
};

}  // namespace

LayerGraph layers_of(const ir::ImportedProfile& profile) { return ProfileView(profile).run(); }

std::vector<int> devices_of(const LayerPlan& plan, size_t stage, const LayerMachine& machine) {
  const LayerStage& own = plan.stages[stage];
  std::vector<int> devices;
  for (int replica = 0; replica < own.replicas; ++replica)
    devices.push_back(own.devices[static_cast<size_t>(replica) * static_cast<size_t>(own.degree)]);
  const auto repeat = [&](int copies, int distance) {
    const size_t count = devices.size();
    for (int copy = 1; copy < copies; ++copy)
      for (size_t i = 0; i < count; ++i) devices.push_back(devices[i] + copy * distance);
  };
  int unit = 1;
  for (size_t level = 1; level < machine.levels.size(); ++level) {
    unit *= machine.levels[level - 1].count;
    for (const LayerGroup& group : plan.groups)
      if (group.level == static_cast<int>(level) && static_cast<int>(stage) >= group.first &&
          static_cast<int>(stage) < group.first + group.count)
        repeat(group.replicas, unit);
  }
  int used = 0;
  for (const LayerStage& each : plan.stages)
    for (const int device : each.devices) used = std::max(used, device + 1);
  repeat(plan.pipelines, used);
  return devices;
}

LayerGraph layer_graph_of(const ir::PlanGraph& graph, Samples micro_batch, double bandwidth) {
  LayerGraph out;
  out.source = LayerSource::kModel;
  std::map<std::pair<LayerId, LayerId>, double> edges;
  for (const PlanNodeId id : graph.node_ids()) {
    const ir::PlanNode& node = graph.nodes[id];
    Layer layer{.id = ModelText(text("n", id.index())), .label = node.label};
    layer.forward_seconds = node.forward.at(micro_batch);
    layer.backward_seconds = node.input_gradient.at(micro_batch) + node.weight_gradient.at(micro_batch);
    for (const ir::WeightGroupId group : node.weights)
      layer.weight_bytes += static_cast<double>(graph.weight_groups[group].bytes.count);
    const LayerVariant vanilla = variant_of(graph, node, micro_batch, layer.weight_bytes);
    layer.degrees = {{.degree = 1, .variants = {vanilla}}};
    layer.memory_bytes = vanilla.memory_fixed + vanilla.memory_per_item;
    out.layers.push_back(std::move(layer));
  }
  for (const ir::PlanValue& value : graph.values) {
    const double bytes = value.bytes.at(micro_batch);
    Layer& producer = out.layers[LayerId(value.producer.index())];
    producer.output_bytes += bytes;
    producer.transfer_seconds += bytes / bandwidth;
    producer.memory_bytes += bytes;
    producer.degrees[0].variants[0].memory_per_item += bytes;
    for (const PlanNodeId reader : value.readers)
      edges[{LayerId(value.producer.index()), LayerId(reader.index())}] += bytes;
  }
  for (const auto& [ends, bytes] : edges) out.edges.push_back({.from = ends.first, .to = ends.second, .bytes = bytes});
  for (LayerId id : out.layer_ids()) {
    // Running the forward again keeps nothing of the layer but needs room for it while it runs.
    Layer& layer = out.layers[id];
    if (layer.degrees[0].variants[0].memory_per_item <= 0) continue;
    LayerVariant again = layer.degrees[0].variants[0];
    again.name = ModelText("activation recomp");
    again.seconds += layer.forward_seconds;
    again.memory_fixed += again.memory_per_item;
    again.memory_per_item = 0;
    layer.degrees[0].variants.push_back(std::move(again));
  }
  for (size_t c = 0; c < graph.colocated.size(); ++c)
    for (const PlanNodeId node : graph.colocated[c])
      out.layers[LayerId(node.index())].color_class = static_cast<int64_t>(c);
  return out;
}

}  // namespace graphpipe::partitioner
