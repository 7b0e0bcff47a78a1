#include "ir/cluster_presets.h"

#include <doctest/doctest.h>

using namespace graphpipe;
using namespace graphpipe::ir;

TEST_CASE("every preset of any size nests its links, covers its devices, and starts with those of a smaller one") {
  for (const ClusterPreset& preset : cluster_presets()) {
    CAPTURE(preset.name);
    CHECK(find_cluster_preset(preset.name) == &preset);
    const Cluster large = preset_cluster(preset, 40);
    for (int count = 1; count <= 40; ++count) {
      CAPTURE(count);
      const Cluster cluster = preset_cluster(preset, count);
      REQUIRE(cluster.devices.size() == static_cast<size_t>(count));
      REQUIRE_FALSE(cluster.levels.empty());
      int below = 1;
      for (const LinkLevel& level : cluster.levels) {
        CHECK(level.group > below);
        CHECK(level.group % below == 0);
        below = level.group;
      }
      CHECK(below >= count);
      for (size_t i = 0; i < cluster.devices.size(); ++i)
        for (size_t j = 0; j < cluster.devices.size(); ++j) {
          const DeviceId a(i), b(j);
          CHECK(cluster.link(a, b).bandwidth == large.link(a, b).bandwidth);
          const bool same_host = cluster.devices[a].host == cluster.devices[b].host;
          if (!same_host) CHECK(cluster.link(a, b).bandwidth == preset.network.bandwidth);
        }
    }
  }
  CHECK(find_cluster_preset("dgx") == nullptr);
}

TEST_CASE("the first devices of a cluster keep the links that join them") {
  Cluster cluster = equal_devices(8);
  cluster.levels = {{.group = 2, .latency = Seconds(1), .bandwidth = BytesPerSecond(4)},
                    {.group = 4, .latency = Seconds(2), .bandwidth = BytesPerSecond(2)},
                    {.group = 8, .latency = Seconds(3), .bandwidth = BytesPerSecond(1)}};
  for (int count = 1; count <= 8; ++count) {
    const Cluster first = first_devices(cluster, count);
    REQUIRE(first.devices.size() == static_cast<size_t>(count));
    CHECK(first.levels.size() == (count <= 2 ? 1 : count <= 4 ? 2 : 3));
    for (size_t i = 0; i < first.devices.size(); ++i)
      for (size_t j = 0; j < first.devices.size(); ++j)
        CHECK(first.link(DeviceId(i), DeviceId(j)) == cluster.link(DeviceId(i), DeviceId(j)));
  }
}
