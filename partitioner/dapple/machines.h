#pragma once
// Device sets of DAPPLE's planner: how many devices of each machine, since devices of one machine are alike.

#include <cstdint>
#include <map>
#include <vector>

#include "partitioner/cost_models/unit_request.h"

namespace graphpipe::partitioner {

/// Bytes per second of its links.
struct DappleLinks {
  double inside = 0, between = 0;
  /// Between machines where the receivers are on several, and of reductions over several.
  double collective = 0;
  /// Reductions inside a machine use its links side by side, two devices each.
  bool mesh = false;
};
/// Those of the request's machine: the innermost level that holds the largest machine, and the outermost. With the
/// quirk D9 the constants of the original.
DappleLinks dapple_links(const UnitRequest& request);

/// Devices up to the end of each machine: what the request says; where it is silent, everything below the outermost of
/// several levels is a machine. Empty: one machine.
std::vector<int> dapple_machine_ends(const UnitRequest& request);

/// Devices of each machine.
using DeviceCounts = std::vector<int>;

class DappleMachines {
 public:
  explicit DappleMachines(const UnitRequest& request);

  const DeviceCounts& sizes() const { return sizes_; }
  DeviceCounts none() const { return DeviceCounts(sizes_.size(), 0); }
  /// Device sets for `slots` devices, `copies` times, where `used` are taken; each once. First the one that prefers
  /// untouched machines, then the one that prefers touched ones, then the one that takes one of each in rounds.
  std::vector<DeviceCounts> candidates(const DeviceCounts& used, int slots, int copies) const;
  /// So many devices of untouched machines in order, then of the others; empty where they do not suffice.
  DeviceCounts fresh_first(const DeviceCounts& used, int count) const;

  /// Seconds from one set of devices to another, and of a reduction over a set.
  double transfer(const DeviceCounts& from, const DeviceCounts& to, double bytes) const;
  double reduction(const DeviceCounts& devices, double bytes) const;
  const DappleLinks& links() const { return links_; }

 private:
  enum class Preference { kFresh, kAppend, kScatter };
  DeviceCounts place(DeviceCounts used, int slots, int copies, Preference preference) const;
  bool take(DeviceCounts& used, int slots, Preference preference) const;

  DeviceCounts sizes_;
  DappleLinks links_;
};

/// Numbers of device counts, so that a search keeps and compares numbers; and for each the places of the next stage of
/// one slot, found once.
class DeviceOccupancies {
 public:
  /// `copies`: of the pipeline, each of which takes a device per stage.
  DeviceOccupancies(const DappleMachines& machines, int copies) : machines_(machines), copies_(copies) {}

  struct Next {
    uint32_t place, used;
  };
  int copies() const { return copies_; }
  uint32_t id_of(const DeviceCounts& counts);
  const DeviceCounts& counts(uint32_t id) const { return counts_[id]; }
  /// The candidates of the machines where `used` are taken, in their order.
  const std::vector<Next>& next(uint32_t used);

 private:
  const DappleMachines& machines_;
  const int copies_;
  std::map<DeviceCounts, uint32_t> ids_;
  std::vector<DeviceCounts> counts_;
  std::map<uint32_t, std::vector<Next>> next_;
};

}  // namespace graphpipe::partitioner
