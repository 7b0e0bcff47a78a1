#pragma once
// What the devices do with their time and memory.

#include <string>

#include "driver/pipeline/pipeline.h"
#include "driver/report/html/html.h"

namespace graphpipe::driver {

/// A bar per device, or per group of devices that do the same where there are many (scheduler/render/device_groups.h):
/// busy, and idle by cause, told apart by hatching too; and its numbers as a table. Of more than 64 bars the 64 that
/// are idle longest.
std::string idle_picture(const Pipeline& pipeline, const PartOf& part);

/// A curve per device, or per such group, over the step, with its limit. Of more than 12 the 12 that are fullest.
std::string memory_pictures(const Pipeline& pipeline);

}  // namespace graphpipe::driver
