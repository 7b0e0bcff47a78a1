#include "ir/cluster_presets.h"

#include <algorithm>
#include <array>

#include "support/integer_math.h"

namespace graphpipe::ir {

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

Device gpu(int64_t memory, double teraflops, double bfloat16, double float16, double bandwidth, double launch) {
  return {.name = {},
          .host = 0,
          .memory = Bytes(memory),
          .compute = FlopsPerSecond(teraflops * 1e12),
          .bfloat16 = {.products = FlopsPerSecond(bfloat16 * 1e12)},
          .float16 = {.products = FlopsPerSecond(float16 * 1e12)},
          .memory_bandwidth = BytesPerSecond(bandwidth),
          .launch_overhead = Seconds(launch)};
}

LinkLevel level(int group, double latency, double bandwidth) {
  return {.group = group, .latency = Seconds(latency), .bandwidth = BytesPerSecond(bandwidth)};
}

}  // namespace

std::span<const ClusterPreset> cluster_presets() {
  // Not of data sheets: latencies are assumptions, launches are fitted to measured layers (docs/clusters.md).
  constexpr double kInside = 10e-6, kNetwork = 20e-6, kV100Launch = 4e-6, kA100Launch = 8e-6, kH100Launch = 7e-6;
  static const std::array kSummitLinks = {level(2, kInside, 50e9), level(4, kInside, 32e9)};
  static const std::array kA100Links = {level(8, kInside, 300e9)};
  static const std::array kH100Links = {level(8, kInside, 450e9)};
  static const std::array kPresets = {
      ClusterPreset{"summit", "machines of four V100 of 16 GB, two to a socket, NVLink 2, 100 Gb/s", 4,
                    gpu(16 * kGiB, 15.7, /*bfloat16=*/0, /*float16=*/125, 900e9, kV100Launch), kSummitLinks, level(0, kNetwork, 12.5e9)},
      ClusterPreset{"dgx-a100", "machines of eight A100 of 80 GB, NVLink 3, 200 Gb/s a GPU", 8,
                    gpu(80 * kGiB, 19.5, /*bfloat16=*/312, /*float16=*/312, 2039e9, kA100Launch), kA100Links, level(0, kNetwork, 25e9)},
      ClusterPreset{"dgx-h100", "machines of eight H100 of 80 GB, NVLink 4, 400 Gb/s a GPU", 8,
                    gpu(80 * kGiB, 67, /*bfloat16=*/989, /*float16=*/989, 3350e9, kH100Launch), kH100Links, level(0, kNetwork, 50e9)},
  };
  return kPresets;
}

const ClusterPreset* find_cluster_preset(std::string_view name) {
  const auto presets = cluster_presets();
  const auto found = std::ranges::find(presets, name, &ClusterPreset::name);
  return found == presets.end() ? nullptr : &*found;
}

Cluster preset_cluster(const ClusterPreset& preset, int count) {
  GP_CHECK(count >= 1);
  Cluster cluster;
  for (int i = 0; i < count; ++i) {
    Device device = preset.device;
    device.name = ModelText(text(preset.name, "-", i));
    device.host = i / preset.devices_of_host;
    cluster.devices.push_back(std::move(device));
  }
  cluster.levels.assign(preset.inside.begin(), preset.inside.end());
  if (count > preset.devices_of_host) {
    cluster.levels.push_back(preset.network);
    const int hosts = ceil_div(count, preset.devices_of_host);
    cluster.levels.back().group = hosts * preset.devices_of_host;
  }
  return first_devices(std::move(cluster), count);
}

}  // namespace graphpipe::ir
