#include "ir/cluster.h"

#include <algorithm>
#include <cmath>

#include "support/integer_math.h"

namespace graphpipe::ir {

LinkId Cluster::link_between(DeviceId from, DeviceId to) const {
  GP_CHECK(!levels.empty());
  GP_CHECK(from.index() < devices.size() && to.index() < devices.size());
  for (size_t level = 0, below = 1;; ++level) {
    const auto group = static_cast<size_t>(std::max(levels[level].group, 1));
    if (level + 1 == levels.size() || from.index() / group == to.index() / group)
      return {.level = level, .from = from.index() / below, .to = to.index() / below};
    below = group;
  }
}

Cluster first_devices(Cluster cluster, int count) {
  GP_CHECK(count >= 1 && static_cast<size_t>(count) <= cluster.devices.size());
  cluster.devices.resize(static_cast<size_t>(count));
  const auto covers = [&](const LinkLevel& level) { return level.group >= count; };
  const auto last = std::ranges::find_if(cluster.levels, covers);
  if (last != cluster.levels.end()) cluster.levels.erase(last + 1, cluster.levels.end());
  return cluster;
}

Cluster with_memory(Cluster cluster, double times) {
  constexpr double kMaxBytes = 1e15;
  for (Device& device : cluster.devices)
    device.memory = Bytes(std::llround(std::min(times * static_cast<double>(device.memory.count), kMaxBytes)));
  return cluster;
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

double add_seconds_per_byte(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  if (cluster.runtime.add_byte > 0) return cluster.runtime.add_byte;
  constexpr double kTraffic = 3;  // bytes read and written per byte of the sum
  double slowest = 0;
  for (const DeviceId device : devices)
    slowest = std::max(slowest, kTraffic / cluster.devices[device].memory_bandwidth.count);
  return slowest;
}

SumTime ring_time(const Cluster& cluster, const LinkLevel& link, int count, double add_byte) {
  if (count < 2) return {};
  const double d = count, rounds = 2 * (d - 1);
  const RuntimeCosts& costs = cluster.runtime;
  return {.constant = rounds * (link.latency.count + costs.message.count),
          .per_byte = (rounds * (1 / link.bandwidth.count + costs.message_byte) + (d - 1) * add_byte) / d};
}

namespace {

/// Groups are runs of ids: the level that joins the lowest and the highest joins all between. Null where they are one.
const LinkLevel* joining_link(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  if (devices.empty()) return nullptr;
  const auto [low, high] = std::minmax_element(devices.begin(), devices.end());
  return *low == *high ? nullptr : &cluster.link(*low, *high);
}

}  // namespace

Seconds all_reduce_time(const Cluster& cluster, const std::vector<DeviceId>& devices, Bytes size) {
  const LinkLevel* const link = joining_link(cluster, devices);
  if (link == nullptr) return Seconds(0);
  return ring_time(cluster, *link, static_cast<int>(devices.size()), add_seconds_per_byte(cluster, devices)).of(size);
}

Seconds copies_sum_time(const Cluster& cluster, const std::vector<std::vector<DeviceId>>& holders, Bytes size) {
  std::vector<DeviceId> all;
  for (const std::vector<DeviceId>& devices : holders) all.insert(all.end(), devices.begin(), devices.end());
  const LinkLevel* const link = joining_link(cluster, all);
  if (holders.size() < 2 || link == nullptr || size.count == 0) return Seconds(0);
  double messages = 0;  // of the device that sends or receives most
  for (const std::vector<DeviceId>& own : holders) {
    double sent = 0;
    for (const std::vector<DeviceId>& other : holders)
      if (&other != &own) sent += static_cast<double>(ceil_div(other.size(), own.size()));
    messages = std::max({messages, sent, static_cast<double>(holders.size() - 1)});
  }
  const RuntimeCosts& costs = cluster.runtime;
  const double additions = static_cast<double>(holders.size() - 1) * add_seconds_per_byte(cluster, all);
  const SumTime time{.constant = link->latency.count + messages * costs.message.count,
                     .per_byte = messages * (1 / link->bandwidth.count + costs.message_byte) + additions};
  return time.of(size);
}

Seconds total_time(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  const LinkLevel* const link = joining_link(cluster, devices);
  if (link == nullptr) return Seconds(0);
  const double others = static_cast<double>(devices.size() - 1);
  return Seconds(2 * (link->latency.count + others * cluster.runtime.message.count));
}

}  // namespace graphpipe::ir
