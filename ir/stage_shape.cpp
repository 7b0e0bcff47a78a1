#include "ir/stage_shape.h"

namespace graphpipe::ir {

void place_in_shape(StageShape shape, StageId stage, size_t devices, StageChoice& choice) {
  const size_t turn = stage.index() % devices, back = devices - 1 - turn;
  choice.mode = shape == StageShape::kBidirectional || shape == StageShape::kReplicas ? ReplicaMode::kRoundRobin
                                                                                      : ReplicaMode::kSplit;
  switch (shape) {
    case StageShape::kReplicas:
      choice.devices.clear();
      for (size_t device = 0; device < devices; ++device) choice.devices.push_back(DeviceId(device));
      return;
    case StageShape::kBidirectional:
      choice.devices = {DeviceId(turn), DeviceId(back)};
      return;
    case StageShape::kV:
      choice.devices = {DeviceId(stage.index() < devices ? turn : back)};
      return;
    case StageShape::kAny:
    case StageShape::kLoop:
      choice.devices = {DeviceId(turn)};
      return;
  }
}

}  // namespace graphpipe::ir
