#include "ir/cluster.h"

#include <algorithm>

namespace graphpipe::ir {

const LinkLevel& Cluster::link(DeviceId a, DeviceId b) const {
  GP_CHECK(!levels.empty());
  GP_CHECK(a.index() < devices.size() && b.index() < devices.size());
  for (const LinkLevel& level : levels) {
    const size_t group = static_cast<size_t>(std::max(level.group, 1));
    if (a.index() / group == b.index() / group) return level;
  }
  return levels.back();
}

Cluster equal_devices(int count) {
  GP_CHECK(count >= 1);
  Cluster cluster;
  for (int i = 0; i < count; ++i)
    cluster.devices.push_back({.name = ModelText(text("device", i)),
                               .host = 0,
                               .memory = Bytes(int64_t{16} << 30),
                               .compute = FlopsPerSecond(50e9),
                               .memory_bandwidth = BytesPerSecond(10e9),
                               .launch_overhead = Seconds(1e-6)});
  cluster.levels = {{.group = count, .latency = Seconds(5e-6), .bandwidth = BytesPerSecond(5e9)}};
  return cluster;
}

Seconds transfer_time(const Cluster& cluster, DeviceId from, DeviceId to, Bytes size) {
  if (from == to) return Seconds(0);
  const LinkLevel& link = cluster.link(from, to);
  return link.latency + size / link.bandwidth;
}

Seconds all_reduce_time(const Cluster& cluster, const std::vector<DeviceId>& devices, Bytes size) {
  if (devices.size() < 2) return Seconds(0);
  // Groups are runs of ids: the level that joins the lowest and the highest joins all between.
  const auto [low, high] = std::minmax_element(devices.begin(), devices.end());
  if (*low == *high) return Seconds(0);
  const LinkLevel& link = cluster.link(*low, *high);
  const double d = static_cast<double>(devices.size());
  return Seconds(2 * (d - 1) / d * (size / link.bandwidth).count + 2 * (d - 1) * link.latency.count);
}

}  // namespace graphpipe::ir
