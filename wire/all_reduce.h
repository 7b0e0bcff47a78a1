#pragma once
// How replicas sum their gradients: numbers that the runtime works with, and that prices and memory follow. std only.
//
// The gradients of a stage with d replicas are divided into buckets of d chunks; every chunk goes round the ring of the
// replicas twice, once to be added up and once to be handed out: runtime/collectives/ring_all_reduce.h.

#include <cstdint>

namespace graphpipe::wire {

/// Bytes of a chunk of a full bucket: large enough to make nothing of a message's overhead, small enough to stay in a
/// core's cache from its receipt to its addition.
inline constexpr int64_t kChunkBytes = 1 << 20;

/// Buckets whose rounds interleave: one moves while another is added.
inline constexpr int64_t kBucketsInFlight = 4;

}  // namespace graphpipe::wire
