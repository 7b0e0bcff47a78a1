#include "partitioner/improve/plan_devices.h"

#include <map>
#include <set>

namespace graphpipe::partitioner {

void renumber_devices(ir::Assignment& assignment) {
  std::map<ir::DeviceId, ir::DeviceId> number;
  for (ir::StageChoice& choice : assignment.choice)
    for (ir::DeviceId& device : choice.devices)
      device = number.try_emplace(device, ir::DeviceId(number.size())).first->second;
}

size_t devices_used(const ir::Assignment& assignment) {
  std::set<ir::DeviceId> used;
  for (const ir::StageChoice& choice : assignment.choice) used.insert(choice.devices.begin(), choice.devices.end());
  return used.size();
}

ir::DeviceId fresh_device(const ir::Assignment& assignment) {
  std::set<ir::DeviceId> used;
  for (const ir::StageChoice& choice : assignment.choice) used.insert(choice.devices.begin(), choice.devices.end());
  size_t next = 0;
  while (used.contains(ir::DeviceId(next))) ++next;
  return ir::DeviceId(next);
}

bool shares_device(const ir::Assignment& assignment, ir::StageId stage) {
  for (ir::StageId other : ids<ir::StageId>(assignment.choice.size())) {
    if (other == stage) continue;
    for (ir::DeviceId device : assignment.choice[other].devices)
      for (ir::DeviceId own : assignment.choice[stage].devices)
        if (own == device) return true;
  }
  return false;
}

}  // namespace graphpipe::partitioner
