#pragma once
// The links of a cluster, numbered as they are met: one per level and direction between two groups of the level below.
// Transfers between the same two groups wait for each other.

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

#include "ir/cluster.h"

namespace graphpipe::scheduler {

class Links {
 public:
  explicit Links(const ir::Cluster& cluster) : cluster_(cluster) {}
  /// -1 where the cluster has no level.
  int32_t between(ir::DeviceId from, ir::DeviceId to) {
    size_t below = 1;
    for (size_t level = 0; level < cluster_.levels.size(); ++level) {
      const auto group = static_cast<size_t>(std::max(1, cluster_.levels[level].group));
      const bool last = level + 1 == cluster_.levels.size();
      if (last || from.index() / group == to.index() / group)
        return numbers_.emplace(std::tuple(level, from.index() / below, to.index() / below), count()).first->second;
      below = group;
    }
    return -1;
  }
  int32_t count() const { return static_cast<int32_t>(numbers_.size()); }

 private:
  const ir::Cluster& cluster_;
  std::map<std::tuple<size_t, size_t, size_t>, int32_t> numbers_;
};

}  // namespace graphpipe::scheduler
