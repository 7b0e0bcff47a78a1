#include "scheduler/study.h"

#include <algorithm>
#include <tuple>

namespace graphpipe::scheduler {

StageGraph study_graph(const std::vector<StudyStage>& stages, Samples batch) {
  // Rates in a study are unlimited, so the size only says that data and gradients flow.
  const ir::SampleFunction one_byte = ir::SampleFunction::polynomial(0, 1);
  StageGraph graph;
  graph.batch = batch;
  std::vector<ir::StageEdge> edges;
  for (const StudyStage& description : stages) {
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

ir::Cluster study_cluster(int count, double latency) {
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

StageGraph chain_study(const ChainStudy& study) {
  std::vector<StudyStage> stages;
  const int count = study.ranks * study.chunks;
  for (int s = 0; s < count; ++s) {
    StudyStage stage;
    if (s > 0) stage.predecessors = {StageId(static_cast<size_t>(s - 1))};
    stage.forward = ir::SampleFunction::polynomial(study.forward, 0);
    stage.input_gradient = ir::SampleFunction::polynomial(study.input_gradient, 0);
    stage.weight_gradient = ir::SampleFunction::polynomial(study.weight_gradient, 0);
    const int round = s / study.ranks, place = s % study.ranks;
    const int rank = study.v_shape && round % 2 == 1 ? study.ranks - 1 - place : place;
    stage.choice.devices = {ir::DeviceId(static_cast<size_t>(rank))};
    stages.push_back(std::move(stage));
  }
  return study_graph(stages, Samples(study.micro_batches));
}

}  // namespace graphpipe::scheduler
