#pragma once
// Which devices a plan uses: for moves that change them.

#include "ir/assignment.h"

namespace graphpipe::partitioner {

/// Devices in the order of the stages that use them first; stages that shared a device still do.
void renumber_devices(ir::Assignment& assignment);

size_t devices_used(const ir::Assignment& assignment);

/// The lowest device that no stage has yet.
ir::DeviceId fresh_device(const ir::Assignment& assignment);

/// Whether another stage has a device of this one too.
bool shares_device(const ir::Assignment& assignment, ir::StageId stage);

}  // namespace graphpipe::partitioner
