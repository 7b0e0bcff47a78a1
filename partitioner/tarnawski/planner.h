#pragma once
// Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020), for throughput:
// the smallest maximum load of accelerators and CPUs, over contiguous placements.

#include "partitioner/cost_models/unit_request.h"

namespace graphpipe::partitioner {

/// W4: the emulation of PipeDream, which keeps biconnected components together and cuts one linear order. linear: the
/// placements along one last-in-first-out order only. Neither is part of `--compat all`.
std::span<const Quirk> max_throughput_quirks();

/// Each device gets the difference of two downsets of the forward layers, backward layers follow their class. Proven,
/// unless the graph has more downsets than fit the memory budget: then the work bound stands. Where the request allows
/// several runs per device: what plan_non_contiguous makes of it.
Result<UnitAnswer> plan_max_throughput(const UnitRequest& request);

/// The terms of its objective: to price placements that other programs made.
CostModel max_throughput_model();

}  // namespace graphpipe::partitioner
