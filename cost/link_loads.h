#pragma once
// What the links of a cluster carry in a step: those of the innermost level from one device to another, further out all
// messages from one group, such as a host, to another, whichever replicas they join.
//
// Example: hosts of two devices, a stage on the devices of the first, its reader on those of the second. A micro-batch
// of 8 MB goes over the one link between them, though each replica sends 4 MB to one of the reader's.

#include <map>
#include <vector>

#include "ir/cluster.h"
#include "ir/stage_graph.h"

namespace graphpipe::cost {

struct LinkLoad {
  ir::LinkId link;
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

/// Those of all links that carry anything. Replicas have the samples that ir::item_range gives them. The order is that
/// of the links.
std::vector<LinkLoad> link_loads(const ir::StageGraph& graph, const ir::Cluster& cluster);

/// The links between groups of devices that several stages sum gradients over, as rings from each of their devices to
/// the next one, with these stages: their sums take turns.
std::map<ir::LinkId, std::vector<ir::StageId>> shared_rings(const ir::StageGraph& graph, const ir::Cluster& cluster);

}  // namespace graphpipe::cost
