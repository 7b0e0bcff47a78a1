#pragma once
// What the links between groups of devices, such as hosts, carry in a step: all messages from one group to another
// share one link, whichever replicas they join.
//
// Example: hosts of two devices, a stage on the devices of the first, its reader on those of the second. A micro-batch
// of 8 MB goes over the one link between them, though each replica sends 4 MB to one of the reader's.

#include <vector>

#include "ir/cluster.h"
#include "ir/stage_graph.h"

namespace graphpipe::cost {

/// A link between two groups of a level of the cluster, in one direction.
struct LinkLoad {
  /// That its messages occupy it in a step.
  double seconds = 0;
  /// Messages of one pair of stages. Gradients go from the reader to the stage that it reads from.
  struct Part {
    ir::StageId from, to;
    bool is_gradient = false;
    double seconds = 0;
  };
  std::vector<Part> parts;
};

/// Those of all links that several pairs of devices share and that carry anything: links of the innermost level join
/// single devices, whose messages StageCost::messages counts. Replicas have the samples that ir::item_range gives them.
/// The order is that of the levels and groups.
std::vector<LinkLoad> shared_link_loads(const ir::StageGraph& graph, const ir::Cluster& cluster);

}  // namespace graphpipe::cost
