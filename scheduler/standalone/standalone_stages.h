#pragma once
// Standalone schedules: stage graphs without a model. Stages have given costs, edges carry data and gradients
// of no size, and every device has one stage or several chunks. A unit of cost is one second of the costs; simulate
// with kTicksPerUnit.

#include "ir/cluster.h"
#include "scheduler/terms.h"

namespace graphpipe::scheduler {

/// What one micro-batch costs on one stage, and how long a message is under way.
struct PassCosts {
  double forward = 1, input_gradient = 1, weight_gradient = 1;
  double latency = 0;
};

struct StandaloneStage {
  std::vector<StageId> predecessors;
  /// Cost of n samples.
  ir::SampleFunction forward, input_gradient, weight_gradient;
  ir::StageChoice choice;
};

/// Needs: predecessors with lower ids. Edges have no size but carry gradients.
StageGraph standalone_graph(const std::vector<StandaloneStage>& stages, Samples batch);

/// `count` devices, one link latency (in units of cost) between any two, no limit of bandwidth and memory.
ir::Cluster standalone_cluster(int count, double latency = 0);

struct ChainStages {
  int ranks = 1;
  int chunks = 1;  // per rank
  int64_t micro_batches = 1;
  /// Costs of one micro-batch on one stage.
  double forward = 1, input_gradient = 1, weight_gradient = 1;
  /// The second half of the stages runs back over the ranks (ZB-V, DualPipeV) instead of beginning again at rank 0.
  bool v_shape = false;
};
/// A chain of ranks * chunks stages, micro-batches of one sample.
StageGraph chain_stages(const ChainStages& standalone);

}  // namespace graphpipe::scheduler
