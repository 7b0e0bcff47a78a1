#pragma once
// The machines: devices with memory and rate, and levels of links between them.

#include <compare>
#include <string>
#include <vector>

#include "ir/types.h"
#include "support/text.h"

namespace graphpipe::ir {

using DeviceId = Id<struct DeviceTag>;

/// Rates in a 16-bit type of the kernels that `--precision` computes in it, where they are known, else 0: those of
/// convolutions (but depthwise ones) and of attention are then those of matrix products, and these as in float32.
struct SixteenBitRates {
  FlopsPerSecond products, convolution, attention;
  bool operator==(const SixteenBitRates&) const = default;
};

struct Device {
  ModelText name;
  /// Host the device is on: same host, same machine.
  int host = 0;
  Bytes memory;
  /// Of matrix products; of convolutions, of those that Winograd's method fits (wire/convolution.h) and depthwise ones,
  /// of attention, and of norms and functions (wire/function_flops.h), where those are known apart, else 0.
  FlopsPerSecond compute, convolution, winograd, depthwise, attention, functions;
  SixteenBitRates bfloat16, float16;
  BytesPerSecond memory_bandwidth;
  /// Of weights and their gradients where a model has more of them than caches hold: what they take beside arithmetic.
  /// 0: as memory_bandwidth, at the same time as arithmetic.
  BytesPerSecond weight_bandwidth;
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
  /// Beside these a step takes the products of optimizers that multiply matrices, at the device's rate.
  bool products_apart = false;
  /// Adding a byte of gradients to those of another replica: what an all-reduce takes beside its messages. Where zero
  /// it is priced by memory traffic.
  double add_byte = 0;
  Seconds of_message(double bytes) const { return Seconds(message.count + bytes * message_byte); }
  bool operator==(const RuntimeCosts&) const = default;
};

/// What carries messages from one group of the level below to another: they take turns. There is another one for the
/// way back.
struct LinkId {
  size_t level = 0;
  /// Numbers of the groups; devices themselves on the innermost level.
  size_t from = 0, to = 0;
  LinkId reversed() const { return {level, to, from}; }
  auto operator<=>(const LinkId&) const = default;
};

struct Cluster {
  IdMap<DeviceId, Device> devices;
  std::vector<LinkLevel> levels;
  RuntimeCosts runtime;

  /// The link that messages from one device to another take. Needs: a level; the last one's group counts as holding
  /// all devices.
  LinkId link_between(DeviceId from, DeviceId to) const;
  /// The level that joins two devices. Needs: the same.
  const LinkLevel& link(DeviceId a, DeviceId b) const { return levels[link_between(a, b).level]; }
  bool operator==(const Cluster&) const = default;
};

/// What `--devices N` means: N equal devices with documented constants, never probed from the host: 16 GiB,
/// 50 GFLOP/s, 10 GB/s of memory traffic, 1 us per operator; one level of 5 us and 5 GB/s.
Cluster equal_devices(int count);
/// The first `count` devices of a cluster, with the links between them. Needs: 1 <= count <= its devices.
Cluster first_devices(Cluster cluster, int count);
/// The cluster with devices of so many times the memory; an infinite number lifts the limit.
Cluster with_memory(Cluster cluster, double times);

/// What a sum of gradients takes that lie on several devices: a line in their bytes.
struct SumTime {
  double constant = 0, per_byte = 0;
  Seconds of(Bytes size) const { return Seconds(constant + per_byte * static_cast<double>(size.count)); }
};
/// Seconds per byte of an addition on the slowest of the devices: measured, else the traffic of reading both and
/// writing the sum.
double add_seconds_per_byte(const Cluster& cluster, const std::vector<DeviceId>& devices);
/// Of a ring over `count` devices whose slowest link is `link`, as the runtime has it (runtime/collectives): 2 (d-1)
/// rounds, in each of which every device sends a d-th of the bytes to the next one; after the first d-1 of them it adds
/// what came. Nothing for one device.
SumTime ring_time(const Cluster& cluster, const LinkLevel& link, int count, double add_byte);
/// Time of an all-reduce of `size` bytes over `devices`: ring_time over the level that joins them all.
Seconds all_reduce_time(const Cluster& cluster, const std::vector<DeviceId>& devices, Bytes size);
/// Time of the sum of the copies of a weight: `holders` are the devices of each stage that has one. Each device gets
/// the sum of every other stage from one of its devices, all at the same time, and adds them. Zero for one stage.
Seconds copies_sum_time(const Cluster& cluster, const std::vector<std::vector<DeviceId>>& holders, Bytes size);
/// Time of gathering a few bytes of all devices on one and sending a total back.
Seconds total_time(const Cluster& cluster, const std::vector<DeviceId>& devices);

}  // namespace graphpipe::ir
