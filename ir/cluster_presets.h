#pragma once
// Clusters by name: `--cluster NAME`. Their numbers are those of the vendors' data sheets, peak rates of float32
// without tensor cores and of 16-bit types with them; docs/clusters.md names the source of each.

#include <optional>
#include <span>
#include <string_view>

#include "ir/cluster.h"

namespace graphpipe::ir {

struct ClusterPreset {
  std::string_view name;
  std::string_view description;
  /// Of one machine: what the name means where no number of devices is given.
  int devices_of_host = 1;
  Device device;
  /// Innermost first, up to the machine; then the network.
  std::span<const LinkLevel> inside;
  LinkLevel network;
};

std::span<const ClusterPreset> cluster_presets();
/// The preset of this name, or null.
const ClusterPreset* find_cluster_preset(std::string_view name);

/// Its first `count` devices. Needs: count >= 1.
Cluster preset_cluster(const ClusterPreset& preset, int count);

}  // namespace graphpipe::ir
