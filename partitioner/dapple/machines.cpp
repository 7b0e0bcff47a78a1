#include "partitioner/dapple/machines.h"

#include <algorithm>
#include <numeric>

#include "partitioner/dapple/planner.h"

namespace graphpipe::partitioner {

namespace {

int total(const DeviceCounts& counts) { return std::accumulate(counts.begin(), counts.end(), 0); }

}  // namespace

DappleMachines::DappleMachines(const std::vector<int>& ends, int devices) {
  int begin = 0;
  for (const int end : ends) {
    sizes_.push_back(end - begin);
    begin = end;
  }
  if (sizes_.empty()) sizes_.push_back(devices);
}

// Marks `slots` more devices as used; false where the preference does not find as many.
bool DappleMachines::take(DeviceCounts& used, int slots, Preference preference) const {
  if (preference == Preference::kScatter) {
    for (bool any = true; slots > 0 && any;) {
      any = false;
      for (size_t m = 0; m < sizes_.size() && slots > 0; ++m)
        if (used[m] < sizes_[m]) ++used[m], --slots, any = true;
    }
    return slots == 0;
  }
  const DeviceCounts before = used;
  const auto fill = [&](bool fresh) {
    for (size_t m = 0; m < sizes_.size() && slots > 0; ++m) {
      if ((before[m] == 0) != fresh) continue;
      const int taken = std::min(slots, sizes_[m] - used[m]);
      used[m] += taken;
      slots -= taken;
    }
  };
  if (preference == Preference::kFresh) fill(true);
  fill(false);
  return slots == 0;
}

DeviceCounts DappleMachines::place(DeviceCounts used, int slots, int copies, Preference preference) const {
  const DeviceCounts before = used;
  for (int copy = 0; copy < copies; ++copy)
    if (!take(used, slots, preference)) return {};
  for (size_t m = 0; m < used.size(); ++m) used[m] -= before[m];
  return used;
}

DeviceCounts DappleMachines::fresh_first(const DeviceCounts& used, int count) const {
  return place(used, count, 1, Preference::kFresh);
}

std::vector<DeviceCounts> DappleMachines::candidates(const DeviceCounts& used, int slots, int copies) const {
  std::vector<DeviceCounts> found;
  for (const Preference preference : {Preference::kFresh, Preference::kAppend, Preference::kScatter}) {
    DeviceCounts counts = place(used, slots, copies, preference);
    if (!counts.empty() && std::ranges::find(found, counts) == found.end()) found.push_back(std::move(counts));
  }
  return found;
}

double DappleMachines::transfer(const DeviceCounts& from, const DeviceCounts& to, double bytes) {
  const auto machines_of = [](const DeviceCounts& counts) {
    return std::ranges::count_if(counts, [](int count) { return count > 0; });
  };
  if (machines_of(to) == 1) {
    int elsewhere = 0;
    for (size_t m = 0; m < from.size(); ++m)
      if (to[m] == 0) elsewhere += from[m];
    return elsewhere > 0 ? bytes * elsewhere / (total(from) * kDappleEthernet) : bytes / kDappleNvlink;
  }
  return bytes / kDappleEthernetCollective;  // the receivers alone are on several machines
}

double DappleMachines::reduction(const DeviceCounts& devices, double bytes) {
  const int count = total(devices);
  if (count == 1) return 0;
  const double moved = 2 * bytes * (count - 1) / count;
  const bool spans = std::ranges::count_if(devices, [](int some) { return some > 0; }) > 1;
  return spans ? moved / kDappleEthernetCollective : moved / kDappleNvlink / (count / 2);
}

}  // namespace graphpipe::partitioner
