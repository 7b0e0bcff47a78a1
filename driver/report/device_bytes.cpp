#include "driver/report/device_bytes.h"

#include <algorithm>
#include <utility>

#include "driver/report/report.h"
#include "ir/device_names.h"

namespace graphpipe::driver {

std::string device_bytes_text(std::vector<DeviceBytes> devices) {
  constexpr size_t kMaxFigures = 8;
  std::ranges::stable_sort(devices, [](const DeviceBytes& a, const DeviceBytes& b) { return a.bytes > b.bytes; });
  std::vector<std::pair<std::string, std::vector<size_t>>> groups;
  for (const DeviceBytes& each : devices) {
    std::string shown = human_bytes(static_cast<double>(each.bytes.count));
    if (groups.empty() || groups.back().first != shown) groups.emplace_back(std::move(shown), std::vector<size_t>());
    groups.back().second.push_back(each.device);
  }
  std::string text;
  size_t told = 0;
  for (size_t i = 0; i < std::min(kMaxFigures, groups.size()); ++i) {
    auto& [shown, numbers] = groups[i];
    std::ranges::sort(numbers);
    text += (text.empty() ? "" : ", ") + shown + " on " + ir::device_names(numbers);
    told += numbers.size();
  }
  if (told < devices.size()) text += ", less on " + std::to_string(devices.size() - told) + " others";
  return text;
}

}  // namespace graphpipe::driver
