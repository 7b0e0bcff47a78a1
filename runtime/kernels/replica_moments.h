#pragma once
// Means and squared deviations of a micro-batch's values, per channel, of what its replicas have of them.

#include <cstdint>
#include <vector>

#include "runtime/replica_exchange.h"

namespace graphpipe::runtime {

/// Of `count` values per channel their means, and the sums of their squared differences from these.
struct Moments {
  int64_t count = 0;
  std::vector<double> means, squares;
};

/// Of the values of all replicas, with the same bits on each.
Moments of_all_replicas(const Moments& own, ReplicaExchange& replicas);

/// Sums over `count` values per channel, two of each channel.
struct ChannelSums {
  int64_t count = 0;
  std::vector<double> first, second;
};
ChannelSums of_all_replicas(const ChannelSums& own, ReplicaExchange& replicas);

}  // namespace graphpipe::runtime
