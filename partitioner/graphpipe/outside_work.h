#pragma once
// A lower bound on the devices that the nodes outside a part of the graph need, which prunes both searches: stages of
// at most t per sample need at least (work / t) devices. A state that leaves the rest fewer is in no plan, and neither
// is any state that it dominates.

#include <vector>

#include "partitioner/graphpipe/search_space.h"
#include "partitioner/graphpipe/stage_cost_table.h"

namespace graphpipe::partitioner {

class OutsideWork {
 public:
  /// The work of a node is the least of what the evaluators say.
  OutsideWork(const SearchSpace& space, const std::vector<const StageEvaluator*>& evaluators);

  /// The most devices, of `devices` in all, that a part may have which lies within elements [first, last) of a chain,
  /// where no stage takes more than t per sample. Below 1 where the part is in no plan.
  int max_devices(int chain, int first, int last, double t, int devices) const;
  /// Whether something lies outside of these elements: one stage more, at least.
  bool any(int chain, int first, int last) const;

 private:
  /// By chain: the device seconds per sample before each element, and in all.
  std::vector<std::vector<double>> before_;
};

}  // namespace graphpipe::partitioner
