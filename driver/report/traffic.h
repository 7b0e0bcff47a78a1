#pragma once
// What the devices of a plan send to each other in a step.

#include <vector>

#include "driver/report/device_bytes.h"
#include "ir/schedule.h"
#include "ir/stage_graph.h"

namespace graphpipe::driver {

struct Traffic {
  /// Activations and their gradients that a device sends to others, in the mean of the steps that the schedule has.
  std::vector<DeviceBytes> messages;
  /// Weight gradients of a device that are summed with those of other replicas, or of other stages with the same
  /// weights. How many bytes that sends is up to the runtime: about twice as many by a ring of many replicas.
  std::vector<DeviceBytes> sums;
};

Traffic traffic_of(const ir::StageGraph& graph, const ir::Schedule& schedule);
/// Of all devices together.
Bytes total_of(const std::vector<DeviceBytes>& devices);

}  // namespace graphpipe::driver
