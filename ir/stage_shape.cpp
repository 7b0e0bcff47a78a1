#include "ir/stage_shape.h"

namespace graphpipe::ir {

size_t device_in_shape(StageShape shape, StageId stage, size_t devices) {
  const size_t turn = stage.index() % devices;
  return shape == StageShape::kV && stage.index() >= devices ? devices - 1 - turn : turn;
}

void place_in_shape(StageShape shape, StageId stage, size_t devices, StageChoice& choice) {
  const size_t first = device_in_shape(shape, stage, devices);
  choice.mode = shape == StageShape::kBidirectional || shape == StageShape::kReplicas ? ReplicaMode::kRoundRobin
                                                                                      : ReplicaMode::kSplit;
  switch (shape) {
    case StageShape::kReplicas:
      choice.devices.clear();
      for (size_t device = 0; device < devices; ++device) choice.devices.push_back(DeviceId(device));
      return;
    case StageShape::kBidirectional:
      choice.devices = {DeviceId(first), DeviceId(devices - 1 - first)};
      return;
    case StageShape::kV:
    case StageShape::kAny:
    case StageShape::kLoop:
      choice.devices = {DeviceId(first)};
      return;
  }
}

}  // namespace graphpipe::ir
