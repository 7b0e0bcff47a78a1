#pragma once
// Alpa's inter-operator program (OSDI 2022).

#include "partitioner/cost_models/unit_request.h"

namespace graphpipe::partitioner {

/// Layers are clustered into at most 16 runs of one order (all of them where they are 24 or fewer). A stage is a run of
/// clusters on a submesh: 1, 2, 4, ... devices of a machine, or a power of two of whole machines. Inside, t devices
/// share each layer (t as the profile offers) and the d others share each micro-batch; recomputation everywhere or
/// nowhere. All devices are used. Stage times by Piper's cost model; memory: what is in flight is one micro-batch for
/// the stage itself and for each later one, divided over d.
///
///   objective = sum of stage times + (micro-batches - 1) times the largest, seconds
///
/// Example: clusters of 3, 1 and 2 s, two devices, four micro-batches, no traffic. Stages of 3 and 1 + 2 s have
/// 6 + 3 * 3 = 15 s; one stage whose two devices share each micro-batch takes 3 s and has 3 + 3 * 3 = 12 s.
///
/// Proven over this space: for each candidate of the largest time the smallest sum.
Result<UnitAnswer> plan_alpa(const UnitRequest& request);

}  // namespace graphpipe::partitioner
