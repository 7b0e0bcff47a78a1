#pragma once
// The split of repeated layers into runs of equal length (repeated_layers.h), priced by Piper's cost model: the
// stand-in for PipeDream-2BW's planner in Piper's experiments.
//
// Example: a layer of 2 s before four repeated ones of 1 s, three devices. One stage with d = 3 takes 2 s and a third
// of its reduction. Three runs, the layer in the first, take 2 + 1, 1 and 2 s. The layer apart and two runs take 2 s
// each, which is fastest where weights have to be reduced.

#include "partitioner/piper/pipeline_dp.h"
#include "support/units.h"

namespace graphpipe::partitioner {

struct EqualSplit {
  /// Empty where nothing fits.
  std::vector<PiperStageChoice> stages;
  double objective = kInfinity;
};

/// Tries every number of stages p, with what stands before and behind the repeated layers in the first and last run or
/// in stages of their own; every d with p d up to the devices and the micro-batches; every degree of the first layer.
/// The first found of the fastest wins. `pays_for_empty_ends` (quirk E3): where nothing stands before, or behind, a
/// stage takes devices there all the same.
EqualSplit split_equally(const UnitPrices& prices, const PiperCosts& costs, bool pays_for_empty_ends);

}  // namespace graphpipe::partitioner
