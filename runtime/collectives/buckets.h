#pragma once
// How the gradients of a replicated stage are divided for their all-reduce, and in which order they are added. This is
// part of the plan: it follows from the stage's table and the placement alone, so all replicas and the serial
// interpreter agree on it.
//
// The gradients lie in buckets, from the last parameter to the first, in the order in which the backward produces them:
// large parameters are split, small ones share a bucket. A bucket has one chunk per replica. The chunk at position c of
// the ring is added in the ring's order starting at c: c, c+1, ..., d-1, 0, ..., c-1. With two replicas this is the
// same sum as in ascending order, since addition commutes.

#include <cstdint>
#include <vector>

#include "runtime/optimizers/owned_elements.h"
#include "runtime/program.h"
#include "wire/all_reduce.h"

namespace graphpipe::runtime {

/// Elements [first, first + count) of a parameter's gradient, in memory order.
struct BucketPart {
  size_t parameter = 0;
  int64_t first = 0;
  int64_t count = 0;
};

struct Bucket {
  std::vector<BucketPart> parts;
  ElementType type = ElementType::kFloat32;
  int64_t elements = 0;
};

/// The buckets of the stage's trainable parameters, with wire::kChunkBytes per replica; none without replicas. A bucket
/// of several parts holds whole parameters.
std::vector<Bucket> buckets_of(const StageEntry& entry, int32_t replicas);

/// The elements of a bucket in chunk `chunk` of `chunks`; sizes differ by at most one, and may be zero.
ElementRange chunk_of(const Bucket& bucket, int32_t chunk, int32_t chunks);

/// The stage's replicas in ring order, ascending by device: neighbours are as close as the placement allows.
std::vector<int32_t> ring_of(const PlanTable& plan, int32_t stage);

}  // namespace graphpipe::runtime
