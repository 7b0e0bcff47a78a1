#include "partitioner/cost_models/unit_prices.h"

#include <algorithm>
#include <map>

namespace graphpipe::partitioner {

namespace {

using ir::PlanNodeId;

ir::SampleFunction per_unit(double value) { return ir::SampleFunction::polynomial(0, value); }

/// In a file a node has one output, whose size its edges state; in a model each value is a tensor of its own, and they
/// add up.
void add_outputs(UnitPrices& prices, bool is_of_file) {
  std::map<std::pair<PlanNodeId, PlanNodeId>, double> bytes;
  for (const ir::PlanValue& value : prices.graph->values) {
    const double size = value.bytes.at(1.0);
    double& output = prices.output_bytes[prices.layer_of[value.producer]];
    output = is_of_file ? std::max(output, size) : output + size;
    for (const PlanNodeId reader : value.readers) bytes[{value.producer, reader}] += size;
  }
  const auto add_edge = [&](const std::pair<PlanNodeId, PlanNodeId>& ends, double size) {
    prices.edges.emplace_back(prices.layer_of[ends.first], prices.layer_of[ends.second]);
    prices.edge_bytes.push_back(size);
  };
  if (is_of_file)
    for (const auto& ends : prices.graph->file_order.edges) add_edge(ends, bytes.at(ends));
  else
    for (const auto& [ends, size] : bytes) add_edge(ends, size);
}

/// Bytes of a node in placements: as a dnn-partitioning file states them, or those of the first alternative of a
/// model's node.
double memory_of(const ir::PlanNode& node, bool is_of_file) {
  if (node.alternatives.empty()) return static_cast<double>(node.buffer_bytes.count);
  return is_of_file ? 0 : node.alternatives.front().fixed_bytes + node.alternatives.front().kept_bytes;
}

ir::NodeAlternative plain_alternative(const ir::PlanGraph& graph, const ir::PlanNode& node, Samples samples) {
  ir::NodeAlternative plain;
  plain.name = ModelText("vanilla");
  plain.seconds.forward = per_unit(node.total(samples));
  for (const ir::WeightGroupId group : node.weights)
    plain.weight_bytes += static_cast<double>(graph.weight_groups[group].bytes.count);
  plain.kept_bytes = node.stash_to_input_gradient.at(samples);
  plain.fixed_bytes = plain.weight_bytes * (2 + graph.optimizer_state_per_weight_byte) +
                      static_cast<double>(node.buffer_bytes.count) + node.workspace.at(samples);
  return plain;
}

/// Running the forward again keeps nothing of the node but needs room for it while it runs.
void add_recomputation(ir::PlanNode& node) {
  ir::NodeAlternative again = node.alternatives.front();
  if (again.kept_bytes <= 0) return;
  again.name = ModelText("activation recomp");
  again.seconds.forward = per_unit(again.seconds.forward.linear() + node.forward.linear());
  again.fixed_bytes += again.kept_bytes;
  again.kept_bytes = 0;
  node.alternatives.push_back(std::move(again));
}

}  // namespace

UnitPrices unit_prices(const ir::PlanGraph& unit) {
  const bool is_of_file = !unit.file_order.nodes.empty();
  UnitPrices prices{.graph = &unit, .nodes = unit.file_order.nodes};
  if (!is_of_file)
    for (const PlanNodeId id : unit.node_ids()) prices.nodes.push_back(id);
  prices.layer_of.resize(unit.nodes.size());
  for (uint32_t layer = 0; layer < prices.size(); ++layer) {
    const ir::PlanNode& node = prices.node(layer);
    prices.layer_of[prices.nodes[layer]] = layer;
    prices.forward.push_back(node.forward.at(1.0));
    prices.seconds.push_back(node.total(1));
    double weights = 0;
    for (const ir::WeightGroupId group : node.weights)
      weights += static_cast<double>(unit.weight_groups[group].bytes.count);
    prices.weight_bytes.push_back(weights);
    double on_cpu = 0;
    if (node.by_kind.size() > 1) {
      const ir::PassSeconds& cpu = node.by_kind[1];
      on_cpu = cpu.total(1);
    }
    prices.cpu_seconds.push_back(on_cpu);
    prices.memory_bytes.push_back(memory_of(node, is_of_file));
    prices.transfer_seconds.push_back(node.host_transfer.at(1.0));
  }
  prices.output_bytes.assign(prices.size(), 0);
  add_outputs(prices, is_of_file);
  return prices;
}

UnitPrices unit_prices(const ir::ImportedProfile& profile) {
  UnitPrices prices = unit_prices(profile.graph);
  prices.time_unit_seconds = profile.time_unit_seconds;
  return prices;
}

ir::PlanGraph unit_of(const ir::PlanGraph& graph, Samples micro_batch, double bandwidth) {
  ir::PlanGraph unit;
  unit.weight_groups = graph.weight_groups;
  unit.colocated = graph.colocated;
  IdMap<PlanNodeId, double> transfer(graph.nodes.size(), 0);
  for (const ir::PlanNode& node : graph.nodes) {
    ir::PlanNode priced{.label = node.label, .description = node.label};
    priced.forward = per_unit(node.forward.at(micro_batch));
    priced.input_gradient = per_unit(node.input_gradient.at(micro_batch) + node.weight_gradient.at(micro_batch));
    priced.weights = node.weights;
    priced.alternatives = {plain_alternative(graph, node, micro_batch)};
    unit.nodes.push_back(std::move(priced));
  }
  for (const ir::PlanValue& value : graph.values) {
    const double bytes = value.bytes.at(micro_batch);
    unit.values.push_back({.producer = value.producer, .readers = value.readers, .bytes = per_unit(bytes)});
    unit.nodes[value.producer].alternatives.front().kept_bytes += bytes;
    transfer[value.producer] += bytes / bandwidth;
  }
  for (const PlanNodeId id : unit.node_ids()) {
    unit.nodes[id].host_transfer = per_unit(transfer[id]);
    add_recomputation(unit.nodes[id]);
  }
  return unit;
}

std::span<const ir::NodeAlternative> alternatives_of(const ir::PlanNode& node, int degree) {
  const auto is_of_degree = [&](const ir::NodeAlternative& way) { return way.degree == degree; };
  const auto first = std::ranges::find_if(node.alternatives, is_of_degree);
  return {first, std::find_if_not(first, node.alternatives.end(), is_of_degree)};
}

int alternative_number(const ir::PlanNode& node, int degree, int variant) {
  const auto own = alternatives_of(node, degree);
  return own.empty() ? 0 : static_cast<int>(own.data() - node.alternatives.data()) + variant;
}

std::vector<uint32_t> topological_layers(const UnitPrices& prices) {
  return topological_order(prices.size(), prices.edges);
}

}  // namespace graphpipe::partitioner
