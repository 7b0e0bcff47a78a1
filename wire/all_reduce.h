#pragma once
// How replicas sum their gradients: numbers that the runtime works with, and that prices and memory follow. std only.
//
// The gradients of a stage with d replicas are divided into buckets of d chunks; every chunk goes round the ring of the
// replicas twice, once to be added up and once to be handed out: runtime/collectives/ring_all_reduce.h.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace graphpipe::wire {

/// The replicas of a stage in the order of their ring: by the rank that each lies on, `ranks[replica]`.
inline std::vector<int32_t> ring_order(const std::vector<int32_t>& ranks) {
  std::vector<int32_t> ring(ranks.size());
  std::iota(ring.begin(), ring.end(), 0);
  std::ranges::stable_sort(ring, {}, [&](int32_t replica) { return ranks[static_cast<size_t>(replica)]; });
  return ring;
}

/// Bytes of a chunk of a full bucket: large enough to make nothing of a message's overhead, small enough to stay in a
/// core's cache from its receipt to its addition.
inline constexpr int64_t kChunkBytes = 1 << 20;

/// Buckets whose rounds interleave: one moves while another is added.
inline constexpr int64_t kBucketsInFlight = 4;

}  // namespace graphpipe::wire
