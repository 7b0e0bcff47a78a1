#include "partitioner/dapple/machines.h"

#include <algorithm>
#include <numeric>

#include "partitioner/cost_models/quirks.h"
#include "partitioner/dapple/planner.h"

namespace graphpipe::partitioner {

namespace {

int total(const DeviceCounts& counts) { return std::accumulate(counts.begin(), counts.end(), 0); }

}  // namespace

std::vector<int> dapple_machine_ends(const UnitRequest& request) {
  if (!request.machines.empty() || request.machine.levels.size() < 2 || request.has(quirks::kFixedBandwidths))
    return request.machines;
  const int machine = request.machine.devices() / request.machine.levels.back().count;
  std::vector<int> ends;
  for (int end = machine; end <= request.machine.devices(); end += machine) ends.push_back(end);
  return ends;
}

DappleLinks dapple_links(const UnitRequest& request) {
  if (request.has(quirks::kFixedBandwidths))
    return {.inside = kDappleNvlink, .between = kDappleEthernet, .collective = kDappleEthernetCollective, .mesh = true};
  int largest = 0, begin = 0;
  for (const int end : dapple_machine_ends(request)) {
    largest = std::max(largest, end - begin);
    begin = end;
  }
  if (largest == 0) largest = request.machine.devices();
  const auto& levels = request.machine.levels;
  int group = 1;
  DappleLinks links{.between = levels.back().bandwidth, .collective = levels.back().bandwidth};
  for (const MachineLevels::Level& level : levels) {
    group *= level.count;
    if (links.inside == 0 && group >= largest) links.inside = level.bandwidth;
  }
  return links;
}

DappleMachines::DappleMachines(const UnitRequest& request) : links_(dapple_links(request)) {
  int begin = 0;
  for (const int end : dapple_machine_ends(request)) {
    sizes_.push_back(end - begin);
    begin = end;
  }
  if (sizes_.empty()) sizes_.push_back(request.machine.devices());
}

// Marks `slots` more devices as used; false if the preference does not find as many.
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

double DappleMachines::transfer(const DeviceCounts& from, const DeviceCounts& to, double bytes) const {
  const auto machines_of = [](const DeviceCounts& counts) {
    return std::ranges::count_if(counts, [](int count) { return count > 0; });
  };
  if (machines_of(to) == 1) {
    int elsewhere = 0;
    for (size_t m = 0; m < from.size(); ++m)
      if (to[m] == 0) elsewhere += from[m];
    return elsewhere > 0 ? bytes * elsewhere / (total(from) * links_.between) : bytes / links_.inside;
  }
  return bytes / links_.collective;  // the receivers are on several machines, wherever the senders are
}

double DappleMachines::reduction(const DeviceCounts& devices, double bytes) const {
  const int count = total(devices);
  if (count == 1) return 0;
  const double moved = 2 * bytes * (count - 1) / count;
  const bool spans = std::ranges::count_if(devices, [](int some) { return some > 0; }) > 1;
  if (spans) return moved / links_.collective;
  return moved / links_.inside / (links_.mesh ? count / 2 : 1);
}

uint32_t DeviceOccupancies::id_of(const DeviceCounts& counts) {
  const auto [at, is_new] = ids_.emplace(counts, static_cast<uint32_t>(counts_.size()));
  if (is_new) counts_.push_back(counts);
  return at->second;
}

const std::vector<DeviceOccupancies::Next>& DeviceOccupancies::next(uint32_t used) {
  const auto [at, is_new] = next_.try_emplace(used);
  if (!is_new) return at->second;
  const DeviceCounts taken = counts_[used];
  for (const DeviceCounts& place : machines_.candidates(taken, 1, copies_)) {
    DeviceCounts all = taken;
    for (size_t m = 0; m < all.size(); ++m) all[m] += place[m];
    at->second.push_back({.place = id_of(place), .used = id_of(all)});
  }
  return at->second;
}

}  // namespace graphpipe::partitioner
