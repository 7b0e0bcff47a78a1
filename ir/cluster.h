#pragma once
// The machines: devices with memory and rate, and levels of links between them.

#include <string>
#include <vector>

#include "ir/types.h"
#include "support/text.h"

namespace graphpipe::ir {

using DeviceId = Id<struct DeviceTag>;

struct Device {
  ModelText name;
  /// Host the device is on: same host, same machine.
  int host = 0;
  Bytes memory;
  FlopsPerSecond compute;
  BytesPerSecond memory_bandwidth;
  /// Seconds that starting one operator costs.
  Seconds launch_overhead;
  bool operator==(const Device&) const = default;
};

/// One level of the hierarchy, innermost first: devices are grouped in runs of `group` (a multiple of the level
/// below's); two devices talk over the innermost level whose group holds both.
struct LinkLevel {
  int group = 1;
  Seconds latency;
  BytesPerSecond bandwidth;
  bool operator==(const LinkLevel&) const = default;
};

/// What running a program costs beside its operators and its links, per device. Measured by `graphpipe profile`; zero
/// where nothing is known.
struct RuntimeCosts {
  /// The constant part of a training step.
  Seconds step;
  /// Each forward, backward, recomputation or half of a backward.
  Seconds action;
  /// Each send or receive keeps the compute of its device this long, and this long per byte.
  Seconds message;
  double message_byte = 0;
  /// The optimizer's step: per weight tensor, and per byte of them. Where both are zero it is priced by memory traffic.
  Seconds update_tensor;
  double update_byte = 0;
  Seconds of_message(double bytes) const { return Seconds(message.count + bytes * message_byte); }
  bool operator==(const RuntimeCosts&) const = default;
};

struct Cluster {
  IdMap<DeviceId, Device> devices;
  std::vector<LinkLevel> levels;
  RuntimeCosts runtime;

  /// The level that joins two different devices. Needs: the last level's group covers all devices.
  const LinkLevel& link(DeviceId a, DeviceId b) const;
  bool operator==(const Cluster&) const = default;
};

/// What `--devices N` means: N equal devices with documented constants, never probed from the host: 16 GiB,
/// 50 GFLOP/s, 10 GB/s of memory traffic, 1 us per operator; one level of 5 us and 5 GB/s.
Cluster equal_devices(int count);

/// One-way time of a message of `size` bytes. Zero between a device and itself.
Seconds transfer_time(const Cluster& cluster, DeviceId from, DeviceId to, Bytes size);
/// Time of an all-reduce of `size` bytes over `devices`, ring algorithm: 2 (d-1)/d size over the slowest link, plus
/// 2 (d-1) latencies. Zero for fewer than two devices.
Seconds all_reduce_time(const Cluster& cluster, const std::vector<DeviceId>& devices, Bytes size);

}  // namespace graphpipe::ir
