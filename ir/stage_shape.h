#pragma once
// Shapes in which stages lie on devices: policies of several stages for each device are defined on one of them.

#include <cstdint>

#include "ir/assignment.h"

namespace graphpipe::ir {

/// The stage graph that a policy is defined on, of P devices.
enum class StageShape : uint8_t {
  kAny,            // one stage per device; the usual case is a chain
  kLoop,           // a chain of P * chunks stages, stage s on device s mod P
  kV,              // a chain of 2P stages, stages r and 2P-1-r on device r
  kBidirectional,  // a chain of P stages with two round-robin replicas: stage s on devices s and P-1-s
  kReplicas,       // one stage with P round-robin replicas
};

/// The number of the device, of `devices` in all, that a stage of a chain lies on; of several the first one. kAny is
/// taken as kLoop.
size_t device_in_shape(StageShape shape, StageId stage, size_t devices);

/// Gives a stage of a chain its devices, of `devices` in all, and the mode of its replicas; kAny is taken as kLoop.
/// Needs: a number of stages that the shape has.
void place_in_shape(StageShape shape, StageId stage, size_t devices, StageChoice& choice);

}  // namespace graphpipe::ir
