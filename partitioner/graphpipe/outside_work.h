#pragma once
// What the rest of a plan needs, seen from a part of it: a bound that cuts both searches short. Stages of at most t per
// sample are together at least (work / t) devices, so a part may have only those that the work outside leaves. A state
// beyond that is in no plan, and neither is one that it would have been kept from by a better state.

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
