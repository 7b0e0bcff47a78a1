#pragma once
// Random stage graphs for laws: any DAG, unequal micro-batches, replicas of both modes, frozen stages, several stages
// on a device, splittable costs.

#include <random>

#include "scheduler/standalone/standalone_stages.h"

namespace graphpipe::tests {

struct StandaloneOptions {
  int max_stages = 6;
  bool replicas = true;
  bool shared_devices = true;
  bool frozen = true;
  bool recompute = true;
  /// Trainable weights, so that the step ends with reductions and optimizer steps.
  bool weights = true;
};

struct StandaloneCase {
  ir::StageGraph graph;
  ir::Cluster cluster;
};

inline StandaloneCase random_stages(uint64_t seed, const StandaloneOptions& options = {}) {
  using namespace scheduler;
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t limit) { return static_cast<int64_t>(random() % static_cast<uint64_t>(limit)); };
  const int64_t stage_count = 1 + below(options.max_stages);
  const int64_t batch = 4 + below(9);
  std::vector<StandaloneStage> stages;
  size_t devices = 0;
  for (int64_t s = 0; s < stage_count; ++s) {
    StandaloneStage stage;
    for (int64_t p = 0; p < s; ++p)
      if (below(s) < 2) stage.predecessors.push_back(StageId(static_cast<size_t>(p)));
    stage.forward = ir::SampleFunction::polynomial(0.1, 0.25 * static_cast<double>(1 + below(6)));
    stage.input_gradient = ir::SampleFunction::polynomial(0, 0.25 * static_cast<double>(1 + below(6)));
    stage.weight_gradient = ir::SampleFunction::polynomial(0, 0.25 * static_cast<double>(1 + below(6)));
    stage.choice.micro_batch = Samples(1 + below(4));
    stage.choice.k = static_cast<int>(1 + below(2));
    stage.choice.recompute = options.recompute && below(4) == 0;
    const int64_t replicas = options.replicas && below(3) == 0 ? 2 : 1;
    if (below(2) == 0) stage.choice.mode = ir::ReplicaMode::kRoundRobin;
    for (int64_t r = 0; r < replicas; ++r) {
      if (options.shared_devices && devices > 0 && r == 0 && below(4) == 0)
        stage.choice.devices.push_back(ir::DeviceId(static_cast<size_t>(below(static_cast<int64_t>(devices)))));
      else stage.choice.devices.push_back(ir::DeviceId(devices++));
    }
    stages.push_back(std::move(stage));
  }
  StandaloneCase standalone{standalone_graph(stages, Samples(batch)),
                            standalone_cluster(static_cast<int>(devices), 0.25 * static_cast<double>(below(4)))};
  if (options.weights)
    for (ir::Stage& stage : standalone.graph.stages)
      stage.trainable_weight_bytes = stage.weight_bytes = Bytes(1 + below(100));
  // A frozen stage has nothing trainable above it either.
  if (options.frozen && below(3) == 0)
    for (ir::Stage& stage : standalone.graph.stages) {
      stage.has_backward = false;
      stage.choice.recompute = false;
      stage.trainable_weight_bytes = Bytes(0);
      stage.input_gradient = stage.weight_gradient = {};
      if (below(3) == 0) break;
    }
  for (ir::StageEdge& edge : standalone.graph.edges)
    if (!standalone.graph.stages[edge.from].has_backward) {
      edge.gradient_bytes = {};
      edge.gradient_count = 0;
    }
  for (ir::Stage& stage : standalone.graph.stages) {
    stage.stash_to_input_gradient = ir::SampleFunction::polynomial(0, 10);
    stage.stash_to_weight_gradient = ir::SampleFunction::polynomial(0, 4);
    stage.workspace = ir::SampleFunction::polynomial(0, 1);
  }
  return standalone;
}

}  // namespace graphpipe::tests
