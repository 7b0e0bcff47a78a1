#pragma once
// The smallest maximum load over all placements, contiguous or not: simulated annealing from several starts, then moves
// and exchanges as long as the sorted loads become smaller. A search without a proof; everything about it is fixed, so
// that equal graphs get equal placements.
//
// Example: nodes of 3, 2 and 3 s in a chain, tensors that cost nothing, two accelerators: loads of 5 and 3 s. No move
// and no exchange makes the sorted loads smaller, so the search ends there. Where such an optimum is only a local one,
// annealing leaves it: it takes moves to larger loads too, the less often the larger they are and the later.

#include "partitioner/tarnawski/placement.h"

namespace graphpipe::partitioner {

struct PlacementResult {
  /// Empty where no placement that fits was found.
  DeviceOfNode device_of;
  double objective = kInfinity;
  /// False where `stop` ended it.
  bool complete = true;
  /// Placements looked at.
  int64_t tried = 0;
};

/// Improves on `starts`, which may exceed the memory, and on placements of its own making. `bound`: a proven bound, at
/// which it ends. The result is never worse than a start that fits. Needs: can_run for every node of the starts.
PlacementResult search_placements(const MaxLoadGraph& graph, const MaxLoadOptions& options,
                                  const std::vector<DeviceOfNode>& starts, double bound);

/// The same loads at most, with fewer devices at each tensor: what the objective does not see, and a schedule does.
DeviceOfNode with_fewer_crossings(const MaxLoadGraph& graph, const MaxLoadOptions& options, DeviceOfNode device_of);

/// The largest node first, each to the device that it leaves with the smallest load; nothing where a node can run
/// nowhere.
std::optional<DeviceOfNode> balanced_placement(const MaxLoadGraph& graph, const MaxLoadOptions& options);

}  // namespace graphpipe::partitioner
