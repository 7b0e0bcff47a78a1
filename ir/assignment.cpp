#include "ir/assignment.h"

namespace graphpipe::ir {

bool shares_devices(const Assignment& plan) {
  IdSet<DeviceId> taken;
  for (const StageChoice& choice : plan.choice)
    for (const DeviceId device : choice.devices)
      if (!taken.insert(device)) return true;
  return false;
}

}  // namespace graphpipe::ir
