#pragma once
// A rank's end of the message exchange with a parameter server.

#include <memory>

#include "runtime/server/served_updates.h"

namespace graphpipe::runtime {

/// Null if the run has no server. `states` are those of the rank. Throws RunError (kUsage) if the workers cannot keep
/// the bound. Everything but the options must outlive it.
std::unique_ptr<ServedUpdates> open_served(const PlanTable& plan, int32_t rank, Channels& channels,
                                           const Device& device, const std::vector<StageState>& states,
                                           const wire::OptimizerOptions& options);

}  // namespace graphpipe::runtime
