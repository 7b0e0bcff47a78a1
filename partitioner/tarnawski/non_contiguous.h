#pragma once
// Tarnawski et al. without contiguity: devices may hold several runs of layers. Each run is a stage of its own, and the
// stages of one device count as one set of layers.

#include "partitioner/cost_models/unit_request.h"
#include "support/deadline.h"

namespace graphpipe::partitioner {

/// As max_throughput_model, with stages that share devices.
CostModel non_contiguous_model();

/// A search from the contiguous optimum, where there is one, and from balanced placements: never worse than that
/// optimum unless it parts layers that a schedule keeps together. The bound is that of the work and holds for all
/// placements. Errors: those of `contiguous`, where no placement was found.
Result<UnitAnswer> plan_non_contiguous(const UnitRequest& request, const Result<UnitAnswer>& contiguous,
                                       const Deadline& deadline);

}  // namespace graphpipe::partitioner
