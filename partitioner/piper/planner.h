#pragma once
// Piper (NeurIPS 2021) and the equal split that its authors measured for PipeDream-2BW's planner. Both price a stage as
// piper/cost_model.h says, in seconds of a micro-batch.

#include "partitioner/cost_models/unit_request.h"

namespace graphpipe::partitioner {

/// P1: variants by the greedy knapsack. P5: times in milliseconds against bytes per second, where the file's times are
/// milliseconds.
std::span<const Quirk> piper_quirks();

/// The best linear pipeline, each with a tensor-parallel degree, replicas (a divisor of the micro-batches) and a
/// variant per layer. Proven, unless the graph has more downsets than fit the memory budget: then the best over those
/// with the smallest cuts, with the work bound.
Result<UnitAnswer> plan_piper(const UnitRequest& request);

/// Transformer layers (labelled ParallelTransformerLayer; all layers where none is) in runs of equal length, the same
/// degree, replicas and variant everywhere. With micro-batches, degrees, replicas and recomputation as Piper has them.
Result<UnitAnswer> plan_equal_runs(const UnitRequest& request);

}  // namespace graphpipe::partitioner
