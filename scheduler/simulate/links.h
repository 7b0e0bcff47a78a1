#pragma once
// The links of a cluster (ir::LinkId), numbered as they are met.

#include <cstdint>
#include <map>

#include "ir/cluster.h"

namespace graphpipe::scheduler {

class Links {
 public:
  explicit Links(const ir::Cluster& cluster) : cluster_(cluster) {}
  /// -1 where the cluster has no level.
  int32_t between(ir::DeviceId from, ir::DeviceId to) {
    if (cluster_.levels.empty()) return -1;
    return numbers_.emplace(cluster_.link_between(from, to), count()).first->second;
  }
  int32_t count() const { return static_cast<int32_t>(numbers_.size()); }

 private:
  const ir::Cluster& cluster_;
  std::map<ir::LinkId, int32_t> numbers_;
};

}  // namespace graphpipe::scheduler
