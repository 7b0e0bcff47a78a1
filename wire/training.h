#pragma once
// Choices of a plan that its programs follow, on both sides of the wall.

#include <cstdint>

namespace graphpipe::wire {

/// How the replicas of a stage share the samples (docs/semantics.md, section 1).
enum class ReplicaMode : uint8_t {
  kSplit,       // each micro-batch is divided: replica r takes samples [floor(r b / d), floor((r+1) b / d))
  kRoundRobin,  // whole micro-batches: number m goes to replica m mod d
};

}  // namespace graphpipe::wire
