#pragma once
// Whether another policy would order the stages of a plan better.

#include <optional>

#include "driver/pipeline/pipeline.h"

namespace graphpipe::driver {

/// The synchronous policy, if one of them is shorter than the plan's own by more than a hundredth, that simulates
/// fastest for the same stages in the memory of the devices, as it is, without a search of orders. Nothing where the
/// plan's own policy tries others, runs no backwards, or is asynchronous, and for schedules too large to simulate all
/// of them within a moment.
std::optional<PolicyAlternative> faster_policy(const Pipeline& pipeline);

}  // namespace graphpipe::driver
