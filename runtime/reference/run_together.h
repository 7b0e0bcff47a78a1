#pragma once
// The parts of a micro-batch whose replicas exchange sums in the middle of a pass, in one process: each part has a
// thread, of which one runs at a time. One that waits for the sums of the others lets the next go on.

#include <functional>
#include <span>

#include "runtime/device/device.h"
#include "runtime/replica_exchange.h"

namespace graphpipe::runtime {

/// Runs all parts to their ends, on the device and with as many threads in each as the caller has. Throws what the
/// first part that fails has thrown.
void run_together(const Device& device, std::span<const std::function<void(ReplicaExchange&)>> parts);

}  // namespace graphpipe::runtime
