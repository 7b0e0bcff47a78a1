#include "runtime/collectives/buckets.h"

#include <algorithm>

#include "runtime/executor/plan_channels.h"
#include "runtime/executor/resolve.h"
#include "runtime/tensors.h"
#include "wire/all_reduce.h"

namespace graphpipe::runtime {

namespace {

int64_t elements_of(const StageEntry& entry, size_t parameter) {
  const TensorRow& tensor = entry.params[parameter].tensor;
  return bytes_of(tensor, 1) / element_size(tensor.type);
}

// Parameters that share a bucket are copied into it, so none of them is split.
bool holds_whole_parameters(const StageEntry& entry, const Bucket& bucket) {
  return bucket.parts.front().count == elements_of(entry, bucket.parts.front().parameter);
}

}  // namespace

std::vector<Bucket> buckets_of(const StageEntry& entry, int32_t replicas) {
  std::vector<Bucket> buckets;
  if (replicas < 2) return buckets;
  std::vector<size_t> parameters = trainable_parameters(entry);
  std::ranges::reverse(parameters);
  for (const size_t parameter : parameters) {
    const ElementType type = entry.params[parameter].tensor.type;
    const int64_t full = replicas * wire::kChunkBytes / element_size(type);
    const int64_t total = elements_of(entry, parameter);
    const bool joins = !buckets.empty() && buckets.back().type == type && buckets.back().elements + total <= full &&
                       holds_whole_parameters(entry, buckets.back());
    for (int64_t first = 0, count = 0; first < total; first += count) {
      if (!joins) buckets.push_back({.parts = {}, .type = type, .elements = 0});
      count = std::min(total - first, full);
      buckets.back().parts.push_back({parameter, first, count});
      buckets.back().elements += count;
    }
  }
  return buckets;
}

ElementRange chunk_of(const Bucket& bucket, int32_t chunk, int32_t chunks) {
  const int64_t first = bucket.elements * chunk / chunks, last = bucket.elements * (chunk + 1) / chunks;
  return {first, last - first};
}

std::vector<int32_t> ring_of(const PlanTable& plan, int32_t stage) {
  std::vector<int32_t> ranks(static_cast<size_t>(plan.stages[static_cast<size_t>(stage)].replicas));
  if (ranks.size() == 1) return {0};  // whichever device it is on
  for (size_t replica = 0; replica < ranks.size(); ++replica)
    ranks[replica] = device_of(plan, stage, static_cast<int32_t>(replica));
  return wire::ring_order(ranks);
}

}  // namespace graphpipe::runtime
