#pragma once
// Copies of one parameter must hold the same bits: those of a stage's replicas, and of stages that share it
// (docs/semantics.md, section 3). Only one of them is saved, so a run compares all of them before it saves and before
// it commits a checkpoint.

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/executor/stage_state.h"

namespace graphpipe::runtime {

/// The SHA-256 of every trainable parameter of the state that has another copy, with its name and place, encoded as
/// check_copies() reads it. Running statistics are not included: each replica has those of its own samples.
std::vector<std::byte> digest_copies(const PlanTable& plan, const StageState& state, const Device& device);
/// The same for `tensors`, which are copies of the state's parameters, among other things. Reads nothing of the state
/// that a step changes.
std::vector<std::byte> digest_copies(const PlanTable& plan, const StageState& state,
                                     std::span<const NamedTensor> tensors);

/// Takes the digests of all states, concatenated in any order. Throws RunError (kCheckFailed, listing all such
/// parameters) if copies differ, and (kPeerFailed) if the bytes are malformed.
void check_copies(std::span<const std::vector<std::byte>> digests);

}  // namespace graphpipe::runtime
