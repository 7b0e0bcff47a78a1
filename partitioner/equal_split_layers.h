#pragma once
// The split of repeated layers into runs of equal length, priced in Piper's terms: how people place transformers by
// hand, and the stand-in for PipeDream-2BW's planner in Piper's experiments.

#include "partitioner/piper_search.h"
#include "support/units.h"

namespace graphpipe::partitioner {

struct EqualSplit {
  /// Empty where nothing fits.
  std::vector<PiperStageChoice> stages;
  double objective = kInfinity;
};

/// Tries every number of stages p, with what stands before and behind the repeated layers in the first and last run or
/// in stages of their own; every d with p d up to the devices and the micro-batches; every degree of the first layer.
/// The last n mod p runs hold one layer more. The first found of the fastest wins. Graphs without layers of the label
/// ParallelTransformerLayer: all layers, in last-in-first-out topological order.
EqualSplit split_equally(const ir::LayerGraph& graph, const PiperCosts& costs);

}  // namespace graphpipe::partitioner
