#pragma once
// The split of repeated layers into runs of equal length (repeated_layers.h), priced in Piper's terms: the stand-in for
// PipeDream-2BW's planner in Piper's experiments.

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
