#pragma once
// Device sets of DAPPLE's planner: how many devices of each machine, since devices of one machine are alike.

#include <vector>

namespace graphpipe::partitioner {

/// Devices of each machine.
using DeviceCounts = std::vector<int>;

class DappleMachines {
 public:
  /// `ends`: devices up to the end of each machine; empty: one machine of `devices`.
  DappleMachines(const std::vector<int>& ends, int devices);

  const DeviceCounts& sizes() const { return sizes_; }
  DeviceCounts none() const { return DeviceCounts(sizes_.size(), 0); }
  /// Device sets for `slots` devices, `copies` times, where `used` are taken; each once. First the one that prefers
  /// untouched machines, then the one that prefers touched ones, then the one that takes one of each in rounds.
  std::vector<DeviceCounts> candidates(const DeviceCounts& used, int slots, int copies) const;
  /// So many devices of untouched machines in order, then of the others; empty where they do not suffice.
  DeviceCounts fresh_first(const DeviceCounts& used, int count) const;

  /// Seconds from one set of devices to another, and of a reduction over a set.
  static double transfer(const DeviceCounts& from, const DeviceCounts& to, double bytes);
  static double reduction(const DeviceCounts& devices, double bytes);

 private:
  enum class Preference { kFresh, kAppend, kScatter };
  DeviceCounts place(DeviceCounts used, int slots, int copies, Preference preference) const;
  bool take(DeviceCounts& used, int slots, Preference preference) const;

  DeviceCounts sizes_;
};

}  // namespace graphpipe::partitioner
