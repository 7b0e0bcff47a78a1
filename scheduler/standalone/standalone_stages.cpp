#include "scheduler/standalone/standalone_stages.h"

#include <algorithm>
#include <tuple>

namespace graphpipe::scheduler {

StageGraph standalone_graph(const std::vector<StandaloneStage>& stages, Samples batch) {
  // Rates in a standalone schedule are unlimited, so the size only says that data and gradients flow.
  const ir::SampleFunction one_byte = ir::SampleFunction::polynomial(0, 1);
  StageGraph graph;
  graph.batch = batch;
  std::vector<ir::StageEdge> edges;
  for (const StandaloneStage& description : stages) {
    ir::Stage stage;
    stage.choice = description.choice;
    stage.forward = description.forward;
    stage.input_gradient = description.input_gradient;
    stage.weight_gradient = description.weight_gradient;
    const StageId id = graph.stages.push_back(std::move(stage));
    for (const StageId predecessor : description.predecessors) {
      GP_CHECK(predecessor < id);
      edges.push_back({.from = predecessor,
                       .to = id,
                       .value = ir::PlanValueId(predecessor.index()),
                       .bytes = one_byte,
                       .gradient_bytes = one_byte,
                       .gradient_count = 1});
    }
  }
  std::sort(edges.begin(), edges.end(), [](const ir::StageEdge& a, const ir::StageEdge& b) {
    return std::tuple(a.from, a.to, a.value) < std::tuple(b.from, b.to, b.value);
  });
  for (ir::StageEdge& edge : edges) graph.edges.push_back(std::move(edge));
  return graph;
}

ir::Cluster standalone_cluster(int count, double latency) {
  constexpr double kUnlimited = 1e300;
  ir::Cluster cluster = ir::equal_devices(count);
  for (ir::Device& device : cluster.devices) {
    device.memory = Bytes(int64_t{1} << 60);
    device.memory_bandwidth = BytesPerSecond(kUnlimited);
    device.launch_overhead = Seconds(0);
  }
  cluster.levels = {{.group = count, .latency = Seconds(latency), .bandwidth = BytesPerSecond(kUnlimited)}};
  return cluster;
}

StageGraph chain_stages(const ChainStages& standalone) {
  std::vector<StandaloneStage> stages;
  const int count = standalone.ranks * standalone.chunks;
  for (int s = 0; s < count; ++s) {
    StandaloneStage stage;
    if (s > 0) stage.predecessors = {StageId(static_cast<size_t>(s - 1))};
    stage.forward = ir::SampleFunction::polynomial(standalone.forward, 0);
    stage.input_gradient = ir::SampleFunction::polynomial(standalone.input_gradient, 0);
    stage.weight_gradient = ir::SampleFunction::polynomial(standalone.weight_gradient, 0);
    const int round = s / standalone.ranks, place = s % standalone.ranks;
    const int rank = standalone.v_shape && round % 2 == 1 ? standalone.ranks - 1 - place : place;
    stage.choice.devices = {ir::DeviceId(static_cast<size_t>(rank))};
    stages.push_back(std::move(stage));
  }
  return standalone_graph(stages, Samples(standalone.micro_batches));
}

}  // namespace graphpipe::scheduler
