#pragma once
// The models of GraphPipe's evaluation (ASPLOS 2025, section 7) as plan graphs, priced by a roofline of one V100:
// 14 TFLOP/s, 800 GB/s, 8 us per operator, 4-byte elements. Backward costs twice the forward, half of it for weights.

#include <algorithm>
#include <string>
#include <vector>

#include "ir/cluster.h"
#include "ir/plan_graph.h"

namespace graphpipe::tests {

/// Summit: 16 GiB V100s, four to a node (NVLink), nodes on 100 Gbit/s InfiniBand.
inline ir::Cluster summit(int devices) {
  ir::Cluster cluster = ir::equal_devices(devices);
  // A V100's memory: gradients of replicas are added there.
  for (const ir::DeviceId device : ids<ir::DeviceId>(cluster.devices.size()))
    cluster.devices[device].memory_bandwidth = BytesPerSecond(900e9);
  cluster.levels = {{.group = 4, .latency = Seconds(5e-6), .bandwidth = BytesPerSecond(45e9)},
                    {.group = std::max(devices, 5), .latency = Seconds(1e-5), .bandwidth = BytesPerSecond(11e9)}};
  return cluster;
}

class ModelBuilder {
 public:
  explicit ModelBuilder(int64_t batch) { graph_.batch = Samples(batch); }

  /// An operator of `flops` per sample that reads `inputs`, has `weights` parameters and makes `elements` per sample;
  /// its backward reads what it reads again.
  ir::PlanNodeId add(std::string name, std::vector<ir::PlanNodeId> inputs, double flops, double elements,
                     double weights = 0) {
    ir::PlanNode node;
    node.label = ModelText(std::move(name));
    const bool has_weights = weights > 0;
    node.forward = seconds(flops, elements, weights, 1);
    node.input_gradient = seconds(flops, elements, weights, has_weights ? 1 : 2);
    if (has_weights) node.weight_gradient = seconds(flops, elements, weights, 1);
    node.workspace = ir::SampleFunction::polynomial(0, 8 * elements);
    if (has_weights)
      node.weights = {graph_.weight_groups.push_back(
          {.bytes = Bytes(static_cast<int64_t>(4 * weights)), .trainable = true, .name = node.label})};
    const ir::PlanNodeId id = graph_.nodes.push_back(std::move(node));
    ir::PlanValue value{.producer = id};
    value.bytes = value.gradient_bytes = ir::SampleFunction::polynomial(0, 4 * elements);
    graph_.values.push_back(std::move(value));
    for (ir::PlanNodeId input : inputs) {
      ir::PlanValue& read = graph_.values[ir::PlanValueId(input.index())];
      read.readers.push_back(id);
      read.gradient_readers.push_back(id);
      (has_weights ? read.saved_by_weight_gradient : read.saved_by_input_gradient).push_back(id);
    }
    return id;
  }

  ir::PlanNodeId linear(const std::string& name, std::vector<ir::PlanNodeId> inputs, double rows, double in,
                        double out) {
    return add(name, std::move(inputs), 2 * rows * in * out, rows * out, in * out);
  }

  ir::PlanGraph take() { return std::move(graph_); }

 private:
  static ir::SampleFunction seconds(double flops, double elements, double weights, double factor) {
    std::vector<ir::SampleFunction::Point> points;
    for (double n = 1; n <= 4096; n *= 2)
      points.push_back({n, 8e-6 + factor * std::max(n * flops / 14e12, (4 * weights + n * 8 * elements) / 800e9)});
    return ir::SampleFunction::table(std::move(points));
  }

  ir::PlanGraph graph_;
};

/// Multi-Modal Transformer: `branches` encoders of `layers` layers, sequence 256, hidden 1024, 16 heads, feed-forward
/// 4096, concatenated; every operator of a layer is a node, residuals and normalisation included.
inline ir::PlanGraph mmt(int64_t batch, int branches = 4, int layers = 8) {
  constexpr double kSequence = 256, kHidden = 1024, kInner = 4096, kHeads = 16;
  ModelBuilder model(batch);
  std::vector<ir::PlanNodeId> tails;
  for (int b = 0; b < branches; ++b) {
    ir::PlanNodeId at = model.linear("embed", {}, kSequence, kHidden, kHidden);
    for (int layer = 0; layer < layers; ++layer) {
      const double size = kSequence * kHidden, scores = kHeads * kSequence * kSequence;
      const double attention = 2 * kSequence * kSequence * kHidden;
      const auto norm = model.add("norm", {at}, 8 * size, size);
      const auto q = model.linear("q", {norm}, kSequence, kHidden, kHidden);
      const auto k = model.linear("k", {norm}, kSequence, kHidden, kHidden);
      const auto v = model.linear("v", {norm}, kSequence, kHidden, kHidden);
      const auto qk = model.add("scores", {q, k}, attention, scores);
      const auto soft = model.add("softmax", {qk}, 5 * scores, scores);
      const auto context = model.add("context", {v, soft}, attention, size);
      const auto out = model.linear("out", {context}, kSequence, kHidden, kHidden);
      const auto sum = model.add("add", {at, out}, size, size);
      const auto norm2 = model.add("norm", {sum}, 8 * size, size);
      const auto up = model.linear("up", {norm2}, kSequence, kHidden, kInner);
      const auto relu = model.add("relu", {up}, kSequence * kInner, kSequence * kInner);
      const auto down = model.linear("down", {relu}, kSequence, kInner, kHidden);
      at = model.add("add", {sum, down}, size, size);
    }
    tails.push_back(at);
  }
  const auto joined = model.add("concat", tails, 0, branches * kSequence * kHidden);
  model.add("loss", {joined}, branches * kSequence * kHidden, 1);
  return model.take();
}

/// DLRM: 7 dense branches of 4 layers of 4096, 7 embedding bags (1M x 64, 100 entries each, concatenated), a top of
/// 4 layers.
inline ir::PlanGraph dlrm(int64_t batch) {
  ModelBuilder model(batch);
  std::vector<ir::PlanNodeId> tails;
  for (int b = 0; b < 7; ++b) {
    ir::PlanNodeId at = model.linear("dense", {}, 1, 4096, 4096);
    for (int layer = 1; layer < 4; ++layer) {
      at = model.add("relu", {at}, 4096, 4096);
      at = model.linear("dense", {at}, 1, 4096, 4096);
    }
    tails.push_back(at);
  }
  for (int b = 0; b < 7; ++b) {
    // A look-up moves the rows only, so its price does not follow from its weights.
    const auto rows = model.add("embedding", {}, 6400, 6400, 0);
    tails.push_back(rows);
  }
  ir::PlanNodeId at = model.add("concat", tails, 0, 7 * 4096 + 7 * 6400);
  at = model.linear("top", {at}, 1, 7 * 4096 + 7 * 6400, 4096);
  for (int layer = 1; layer < 4; ++layer) {
    at = model.add("relu", {at}, 4096, 4096);
    at = model.linear("top", {at}, 1, 4096, 4096);
  }
  model.add("loss", {at}, 4096, 1);
  ir::PlanGraph graph = model.take();
  for (ir::PlanNode& node : graph.nodes)
    if (node.label.raw() == "embedding")
      node.weights = {graph.weight_groups.push_back({.bytes = Bytes(int64_t{4} * 64 * 1000000), .name = node.label})};
  return graph;
}

/// CANDLE-Uno: 7 branches of 4 layers of 4096, concatenated, 4 layers and an output.
inline ir::PlanGraph candle_uno(int64_t batch, int branches = 7) {
  ModelBuilder model(batch);
  std::vector<ir::PlanNodeId> tails;
  for (int b = 0; b < branches; ++b) {
    ir::PlanNodeId at = model.linear("tower", {}, 1, 4096, 4096);
    for (int layer = 1; layer < 4; ++layer) {
      at = model.add("relu", {at}, 4096, 4096);
      at = model.linear("tower", {at}, 1, 4096, 4096);
    }
    tails.push_back(at);
  }
  ir::PlanNodeId at = model.add("concat", tails, 0, 4096.0 * branches);
  at = model.linear("top", {at}, 1, 4096.0 * branches, 4096);
  for (int layer = 1; layer < 4; ++layer) {
    at = model.add("relu", {at}, 4096, 4096);
    at = model.linear("top", {at}, 1, 4096, 4096);
  }
  model.add("loss", {at}, 4096, 1);
  return model.take();
}

}  // namespace graphpipe::tests
