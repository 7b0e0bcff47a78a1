#pragma once
// What the devices do with their time and memory.

#include <string>

#include "driver/pipeline/pipeline.h"
#include "driver/report/html/html.h"

namespace graphpipe::driver {

/// A bar per device: busy, and idle by cause, told apart by hatching too; and its numbers as a table. Of more than 64
/// devices the 64 that are idle longest.
std::string idle_picture(const Pipeline& pipeline, const PartOf& part);

/// A curve per device over the step, with its limit. Of more than 12 devices the 12 that are fullest.
std::string memory_pictures(const Pipeline& pipeline);

}  // namespace graphpipe::driver
