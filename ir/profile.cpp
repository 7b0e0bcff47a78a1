#include "ir/profile.h"

namespace graphpipe::ir {

Cluster with_measurements(Cluster cluster, const Profile& profile) {
  for (const LinkMeasurement& link : profile.links) {
    const auto level = static_cast<size_t>(link.level);
    if (level >= cluster.levels.size()) continue;
    cluster.levels[level].latency = link.latency;
    cluster.levels[level].bandwidth = link.bandwidth;
  }
  cluster.runtime = profile.runtime;
  return cluster;
}

}  // namespace graphpipe::ir
