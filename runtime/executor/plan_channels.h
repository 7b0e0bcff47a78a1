#pragma once
// The channels with an end on a device. Both ends derive the same keys, each from its own program and the plan.

#include "runtime/executor/resolve.h"

namespace graphpipe::runtime {

std::vector<ChannelSpec> plan_channels(const DeviceProgram& program, const ResolvedProgram& resolved);

/// Indices of a stage's trainable parameters, ascending.
std::vector<size_t> trainable_parameters(const StageEntry& entry);

}  // namespace graphpipe::runtime
