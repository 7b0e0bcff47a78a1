#pragma once
// What a planner of layer graphs decides: a linear pipeline with devices. Numbers of layers are those of the layer
// graph.

#include <vector>

#include "partitioner/cost_models/layer_graph.h"

namespace graphpipe::partitioner {

struct LayerStage {
  /// Ascending.
  std::vector<LayerId> layers;
  /// Numbers of the devices, replica by replica: `replicas * degree` of them. With CPUs they are numbered after the
  /// accelerators. In a nested plan (groups): of the first copy of the groups around it. Stages may share devices
  /// where the terms of the plan's planner say so (LayerConvention::pools_devices).
  std::vector<int> devices;
  int replicas = 1;
  /// Tensor-parallel degree of each replica.
  int degree = 1;
  /// Per layer the variant that runs (LayerDegree::variants of `degree`); empty: the first of each.
  std::vector<int> variants;
  bool on_cpu = false;
  /// Every layer is run again before its backward.
  bool recompute = false;
  bool operator==(const LayerStage&) const = default;
};

/// Stages [first, first + count) form one stage of an outer level of the machine, copied `replicas` times.
struct LayerGroup {
  /// 1 is the first level outside of the stages' own.
  int level = 1;
  int first = 0, count = 1;
  int replicas = 1;
  bool operator==(const LayerGroup&) const = default;
};

struct LayerPlan {
  /// In an order in which every edge leads from a stage to the same or a later one; by device where stages need not be
  /// convex.
  std::vector<LayerStage> stages;
  /// Outer levels, innermost first, each level covering all stages in order; empty: one level.
  std::vector<LayerGroup> groups;
  /// The whole pipeline that many times, each copy on a part of the samples.
  int pipelines = 1;
  /// Samples (or units of work) of a micro-batch, and micro-batches of a step, where the planner chose or was told.
  int64_t micro_batch = 1, micro_batches = 1;
  bool operator==(const LayerPlan&) const = default;
};

}  // namespace graphpipe::partitioner
