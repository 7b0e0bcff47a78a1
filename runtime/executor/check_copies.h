#pragma once
// Copies of one parameter must hold the same bits: those of a stage's replicas, and of stages that share it
// (docs/semantics.md, section 3). Only one of them is saved, so a run looks at all of them before it saves, and before
// a checkpoint counts.

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/executor/stage_state.h"

namespace graphpipe::runtime {

/// The SHA-256 of every trainable parameter of the state that has another copy, with its name and place, in words that
/// check_copies() reads. Running statistics are not among them: each replica has those of its own samples.
std::vector<std::byte> digest_copies(const PlanTable& plan, const StageState& state, const Device& device);
/// The same of `tensors`, which are copies of parameters of the state, or of other things of it. Reads nothing of the
/// state that a step changes.
std::vector<std::byte> digest_copies(const PlanTable& plan, const StageState& state,
                                     std::span<const NamedTensor> tensors);

/// What digest_copies() says of all states, one after the other in any order. Throws RunError (kCheckFailed, all
/// parameters at once) where copies differ, and (kPeerFailed) where the words are malformed.
void check_copies(std::span<const std::vector<std::byte>> digests);

}  // namespace graphpipe::runtime
