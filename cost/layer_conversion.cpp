#include "cost/layer_conversion.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace graphpipe::cost {

namespace {

using ir::LayerId;
using ir::PlanNodeId;
using ir::SampleFunction;

constexpr double kMaxMemory = 1152921504606846976.0;  // 2^60

Bytes whole_bytes(double bytes) { return Bytes(std::llround(std::clamp(bytes, 0.0, 1e15))); }
SampleFunction per_sample(double value) { return SampleFunction::polynomial(0, value); }

// Which layers become one node: classes, and what lies on a cycle between them. Numbers in topological order.
class Groups {
 public:
  explicit Groups(const ir::LayerGraph& graph) : graph_(graph), adjacency_(adjacency_of(graph)) {
    parent_.resize(graph.layers.size());
    std::iota(parent_.begin(), parent_.end(), 0U);
    std::map<int64_t, uint32_t> first_of_class;
    for (const LayerId id : graph.layer_ids())
      if (const auto color = graph.layers[id].color_class)
        join(static_cast<uint32_t>(id.index()),
             first_of_class.emplace(*color, static_cast<uint32_t>(id.index())).first->second);
    for (const LayerId id : graph.layer_ids()) class_of_.push_back(root(static_cast<uint32_t>(id.index())));
    for (const ir::LayerEdge& edge : graph.edges)
      if (!graph.layers[edge.from].is_backward && !graph.layers[edge.to].is_backward) forward_.insert(classes(edge));
    order();
  }

  /// Of each layer its group, numbered from 0 in topological order.
  std::vector<uint32_t> group_of;
  size_t count = 0;

  /// Edges between groups in the direction of the forward pass: an edge between backward layers is turned round (unless
  /// the file writes it along the forward edge of its classes already: all published layer graphs do), one from a
  /// forward to a backward layer carries a kept activation, which is the business of the stash.
  template <typename Visit>
  void for_each_edge(Visit visit) const {
    for (const ir::LayerEdge& edge : graph_.edges) {
      const bool from_back = graph_.layers[edge.from].is_backward, to_back = graph_.layers[edge.to].is_backward;
      if (!from_back && !to_back) visit(edge.from, edge.to, edge.bytes);
      if (!from_back || !to_back) continue;
      const auto [from, to] = classes(edge);
      if (forward_.contains({from, to}) && !forward_.contains({to, from})) visit(edge.from, edge.to, edge.bytes);
      else visit(edge.to, edge.from, edge.bytes);
    }
  }

 private:
  std::pair<uint32_t, uint32_t> classes(const ir::LayerEdge& edge) const {
    return {class_of_[edge.from.index()], class_of_[edge.to.index()]};
  }

  uint32_t root(uint32_t at) {
    while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
    return at;
  }
  void join(uint32_t a, uint32_t b) {
    a = root(a), b = root(b);
    if (a != b) parent_[std::max(a, b)] = std::min(a, b);
  }

  // Repeats: sort the groups topologically; what is left over is on or behind cycles, so join the cycles.
  void order() {
    while (true) {
      std::vector<std::vector<uint32_t>> after(parent_.size());
      std::vector<size_t> waiting(parent_.size(), 0);
      for_each_edge([&](LayerId from, LayerId to, double) {
        const uint32_t a = root(static_cast<uint32_t>(from.index())), b = root(static_cast<uint32_t>(to.index()));
        if (a == b) return;
        after[a].push_back(b);
        ++waiting[b];
      });
      std::set<uint32_t> ready;
      std::vector<uint32_t> sorted;
      size_t roots = 0;
      for (uint32_t at = 0; at < parent_.size(); ++at) {
        if (root(at) != at) continue;
        ++roots;
        if (waiting[at] == 0) ready.insert(at);
      }
      while (!ready.empty()) {
        const uint32_t at = *ready.begin();
        ready.erase(ready.begin());
        sorted.push_back(at);
        for (const uint32_t next : after[at])
          if (--waiting[next] == 0) ready.insert(next);
      }
      if (sorted.size() == roots) return number(sorted);
      join_a_cycle(after, waiting);
    }
  }

  // From a group that waits, backwards over groups that wait until one comes again.
  void join_a_cycle(const std::vector<std::vector<uint32_t>>& after, const std::vector<size_t>& waiting) {
    std::vector<uint32_t> before(parent_.size(), 0);
    uint32_t at = 0;
    for (uint32_t from = 0; from < parent_.size(); ++from)
      for (const uint32_t to : after[from])
        if (waiting[from] > 0 && waiting[to] > 0) {
          before[to] = from;
          at = to;
        }
    std::vector<bool> seen(parent_.size(), false);
    for (; !seen[at]; at = before[at]) seen[at] = true;
    for (uint32_t other = before[at]; root(other) != root(at); other = before[other]) join(other, at);
  }

  void number(const std::vector<uint32_t>& sorted) {
    std::vector<uint32_t> index(parent_.size(), 0);
    for (size_t i = 0; i < sorted.size(); ++i) index[sorted[i]] = static_cast<uint32_t>(i);
    count = sorted.size();
    for (uint32_t layer = 0; layer < parent_.size(); ++layer) group_of.push_back(index[root(layer)]);
  }

  const ir::LayerGraph& graph_;
  const ir::LayerAdjacency adjacency_;
  std::vector<uint32_t> parent_;
  /// Of each layer the first layer of its class, and which classes have an edge between forward layers.
  std::vector<uint32_t> class_of_;
  std::set<std::pair<uint32_t, uint32_t>> forward_;
};

// What a layer costs where it runs.
struct LayerPrice {
  double forward = 0, backward = 0, weights = 0, stash = 0, fixed = 0;
};

class Converter {
 public:
  Converter(const ir::LayerGraph& graph, Samples batch, const ir::LayerPlan* plan, double bandwidth)
      : graph_(graph), groups_(graph), plan_(plan), bandwidth_(bandwidth) {
    out_.graph.batch = batch;
    out_.node_of.resize(graph.layers.size());
    place_.resize(graph.layers.size(), {-1, 0});
    if (plan == nullptr) return;
    for (size_t s = 0; s < plan->stages.size(); ++s)
      for (size_t i = 0; i < plan->stages[s].layers.size(); ++i)
        place_[plan->stages[s].layers[i]] = {static_cast<int>(s), i};
  }

  ConvertedLayers run() {
    for (const LayerId id : graph_.layer_ids()) out_.node_of[id] = PlanNodeId(groups_.group_of[id.index()]);
    add_nodes();
    add_values();
    return std::move(out_);
  }

 private:
  const ir::LayerVariant* variant(LayerId id) const {
    const ir::Layer& layer = graph_.layers[id];
    if (layer.degrees.empty()) return nullptr;
    const auto [s, i] = place_[id];
    if (s < 0) return &layer.degrees.front().variants.front();
    const ir::LayerStage& stage = plan_->stages[static_cast<size_t>(s)];
    const auto found = std::ranges::find(layer.degrees, stage.degree, &ir::LayerDegree::degree);
    if (found == layer.degrees.end()) return nullptr;
    return &found->variants[stage.variants.empty() ? 0 : static_cast<size_t>(stage.variants[i])];
  }

  /// Bytes of the collectives of a layer's edges into other stages.
  double boundary_bytes(LayerId id, const ir::LayerVariant& run) const {
    double bytes = 0;
    for (const auto* side : {&run.sync_from, &run.sync_to})
      for (const ir::LayerSync& sync : *side)
        if (place_[sync.neighbour].first != place_[id].first) bytes += sync.bytes;
    return bytes;
  }

  LayerPrice price(LayerId id) const {
    const ir::Layer& layer = graph_.layers[id];
    const auto [s, i] = place_[id];
    const bool on_cpu = s >= 0 && plan_->stages[static_cast<size_t>(s)].on_cpu;
    if (const ir::LayerVariant* run = variant(id)) {
      const double collective = boundary_bytes(id, *run) / bandwidth_;
      return {run->seconds / 3 + collective, run->seconds * 2 / 3 + collective, run->weight_bytes, run->memory_per_item,
              std::max(0.0, run->memory_fixed - 2 * run->weight_bytes)};
    }
    if (graph_.source == ir::LayerSource::kDnnPartitioning) {
      const double seconds = on_cpu ? layer.cpu_seconds : layer.seconds();
      return {layer.is_backward ? 0 : seconds, layer.is_backward ? seconds : 0, 0, 0, on_cpu ? 0 : layer.memory_bytes};
    }
    return {layer.forward_seconds, layer.backward_seconds, layer.weight_bytes, layer.output_bytes, 0};
  }

  void add_nodes() {
    IdMap<PlanNodeId, LayerPrice> sums(groups_.count);
    out_.graph.nodes.resize(groups_.count);
    for (const LayerId id : graph_.layer_ids()) {
      const PlanNodeId node = out_.node_of[id];
      const LayerPrice own = price(id);
      sums[node].forward += own.forward;
      sums[node].backward += own.backward;
      sums[node].weights += own.weights;
      sums[node].stash += own.stash;
      sums[node].fixed += own.fixed;
      if (out_.graph.nodes[node].label.empty()) out_.graph.nodes[node].label = graph_.layers[id].id;
    }
    trains_ = std::ranges::any_of(sums, [](const LayerPrice& sum) { return sum.backward > 0; });
    for (const PlanNodeId id : out_.graph.node_ids()) {
      ir::PlanNode& node = out_.graph.nodes[id];
      const LayerPrice& sum = sums[id];
      node.forward = per_sample(sum.forward);
      node.has_backward = trains_;
      node.input_gradient = per_sample(sum.weights > 0 ? sum.backward / 2 : sum.backward);
      node.weight_gradient = per_sample(sum.weights > 0 ? sum.backward / 2 : 0);
      node.stash_to_input_gradient = per_sample(trains_ ? sum.stash : 0);
      node.buffer_bytes = whole_bytes(sum.fixed);
      if (sum.weights > 0)
        node.weights = {out_.graph.weight_groups.push_back(
            {.bytes = whole_bytes(sum.weights), .trainable = trains_, .name = node.label})};
    }
  }

  void add_values() {
    // Of each group what it sends to others: the largest of the sizes that a layer's edges give, layer by layer.
    IdMap<PlanNodeId, std::map<LayerId, double>> sent(groups_.count);
    IdMap<PlanNodeId, std::set<PlanNodeId>> readers(groups_.count);
    groups_.for_each_edge([&](LayerId from, LayerId to, double bytes) {
      const PlanNodeId a = out_.node_of[from], b = out_.node_of[to];
      if (a == b) return;
      readers[a].insert(b);
      if (graph_.layers[from].is_backward) return;  // its forward edge says the size
      double& size = sent[a][from];
      size = std::max(size, bytes);
    });
    for (const PlanNodeId id : out_.graph.node_ids()) {
      if (readers[id].empty()) continue;
      double bytes = 0;
      for (const auto& [layer, size] : sent[id]) bytes += size;
      ir::PlanValue value{.producer = id, .readers = {readers[id].begin(), readers[id].end()}};
      value.bytes = per_sample(bytes);
      if (trains_) {
        value.gradient_bytes = value.bytes;
        value.gradient_readers = value.readers;
      }
      out_.graph.values.push_back(std::move(value));
    }
  }

  const ir::LayerGraph& graph_;
  const Groups groups_;
  const ir::LayerPlan* plan_;
  const double bandwidth_;
  IdMap<LayerId, std::pair<int, size_t>> place_;
  bool trains_ = true;
  ConvertedLayers out_;
};

ir::LayerVariant variant_of(const ir::PlanGraph& graph, const ir::PlanNode& node, Samples samples,
                            double weight_bytes) {
  ir::LayerVariant variant;
  variant.name = ModelText("vanilla");
  variant.seconds = node.forward.at(samples) + node.input_gradient.at(samples) + node.weight_gradient.at(samples);
  variant.weight_bytes = weight_bytes;
  variant.memory_per_item = node.stash_to_input_gradient.at(samples);
  variant.memory_fixed = weight_bytes * (2 + graph.optimizer_state_per_weight_byte) +
                         static_cast<double>(node.buffer_bytes.count) + node.workspace.at(samples);
  return variant;
}

}  // namespace

ConvertedLayers convert_layers(const ir::LayerGraph& graph, Samples batch, const ir::LayerPlan* plan,
                               double bandwidth) {
  return Converter(graph, batch, plan, bandwidth).run();
}

ir::Cluster cluster_of(const LayerMachine& machine) {
  ir::Cluster cluster = ir::equal_devices(machine.devices() + machine.cpus);
  for (ir::Device& device : cluster.devices) device.memory = whole_bytes(std::min(machine.memory, kMaxMemory));
  for (int cpu = 0; cpu < machine.cpus; ++cpu)
    cluster.devices[ir::DeviceId(static_cast<size_t>(machine.devices() + cpu))].memory = whole_bytes(kMaxMemory);
  cluster.levels.clear();
  int group = 1;
  for (const LayerMachine::Level& level : machine.levels) {
    group *= level.count;
    cluster.levels.push_back({.group = group, .latency = Seconds(0), .bandwidth = BytesPerSecond(level.bandwidth)});
  }
  if (machine.cpus > 0) {
    // Groups are multiples of the level below.
    const int units = (machine.devices() + machine.cpus + group - 1) / group;
    cluster.levels.push_back(
        {.group = group * units, .latency = Seconds(0), .bandwidth = BytesPerSecond(machine.levels.back().bandwidth)});
  }
  return cluster;
}

std::vector<int> devices_of(const ir::LayerPlan& plan, size_t stage, const LayerMachine& machine) {
  const ir::LayerStage& own = plan.stages[stage];
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
    for (const ir::LayerGroup& group : plan.groups)
      if (group.level == static_cast<int>(level) && static_cast<int>(stage) >= group.first &&
          static_cast<int>(stage) < group.first + group.count)
        repeat(group.replicas, unit);
  }
  int used = 0;
  for (const ir::LayerStage& each : plan.stages)
    for (const int device : each.devices) used = std::max(used, device + 1);
  repeat(plan.pipelines, used);
  return devices;
}

Result<ir::Assignment> assignment_of(const ConvertedLayers& converted, const ir::LayerPlan& plan,
                                     const LayerMachine& machine) {
  ir::Assignment assignment;
  assignment.stage_of.resize(converted.graph.nodes.size());
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    ir::StageChoice choice{.mode = ir::ReplicaMode::kRoundRobin, .recompute = plan.stages[s].recompute};
    for (const int device : devices_of(plan, s, machine))
      choice.devices.push_back(ir::DeviceId(static_cast<size_t>(device)));
    if (choice.devices.size() == 1) choice.mode = ir::ReplicaMode::kSplit;
    assignment.choice.push_back(std::move(choice));
    for (const LayerId layer : plan.stages[s].layers) {
      ir::StageId& stage = assignment.stage_of[converted.node_of[layer]];
      if (stage.valid() && stage != ir::StageId(s))
        return Diagnostic{.code = Code::kBadPlan,
                          .message = "layers that belong together are in two stages",
                          .hint = "such a plan has a price of its own, but no schedule"};
      stage = ir::StageId(s);
    }
  }
  return assignment;
}

ir::LayerGraph layer_graph_of(const ir::PlanGraph& graph, Samples micro_batch, double bandwidth) {
  ir::LayerGraph out;
  out.source = ir::LayerSource::kModel;
  std::map<std::pair<LayerId, LayerId>, double> edges;
  for (const PlanNodeId id : graph.node_ids()) {
    const ir::PlanNode& node = graph.nodes[id];
    ir::Layer layer{.id = ModelText(text("n", id.index())), .label = node.label};
    layer.forward_seconds = node.forward.at(micro_batch);
    layer.backward_seconds = node.input_gradient.at(micro_batch) + node.weight_gradient.at(micro_batch);
    for (const ir::WeightGroupId group : node.weights)
      layer.weight_bytes += static_cast<double>(graph.weight_groups[group].bytes.count);
    const ir::LayerVariant vanilla = variant_of(graph, node, micro_batch, layer.weight_bytes);
    layer.degrees = {{.degree = 1, .variants = {vanilla}}};
    layer.memory_bytes = vanilla.memory_fixed + vanilla.memory_per_item;
    out.layers.push_back(std::move(layer));
  }
  for (const ir::PlanValue& value : graph.values) {
    const double bytes = value.bytes.at(micro_batch);
    ir::Layer& producer = out.layers[LayerId(value.producer.index())];
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
    ir::Layer& layer = out.layers[id];
    if (layer.degrees[0].variants[0].memory_per_item <= 0) continue;
    ir::LayerVariant again = layer.degrees[0].variants[0];
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

}  // namespace graphpipe::cost
